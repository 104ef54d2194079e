"""The warehouse in a SQL database."""
