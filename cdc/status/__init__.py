"""How far everything is: ``cdc status``.

``rules`` judges what was read, ``run`` reads it over the ports of the pipeline.
"""
