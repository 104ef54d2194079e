"""Mutants made by rule, of the modules that decide what is kept."""
