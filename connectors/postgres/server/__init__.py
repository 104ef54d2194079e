"""Sessions with the source: logins, the slot, the walsender's stream, the catalog, and what is selected from it."""
