"""Read your own write: wait until a store shows an LSN (``cdc wait``).

``rules`` says when a store shows it, ``run`` waits over the ports of the pipeline.
"""
