"""The application of ``cdc sink``: queries, stores and pages, from start to an orderly end."""
