"""Read your own write: wait until a store shows an LSN (``cdc wait``)."""
