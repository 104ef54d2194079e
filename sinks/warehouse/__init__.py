"""Shared by the warehouses: columns and rows."""
