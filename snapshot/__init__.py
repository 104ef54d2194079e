"""Rows that are in the tables: one engine reads them. ``first`` and ``later`` schedule what it reads, and when."""
