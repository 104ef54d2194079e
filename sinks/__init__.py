"""The stores: how a change gets into a search index, a cache or a warehouse, newest first and never lost."""
