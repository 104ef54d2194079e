"""The end of a pipeline: slot and publication, and its topics where that is asked for: ``cdc drop``.

``rules`` is pure, ``ports`` says what is asked of the world, and ``run`` takes the steps.
"""
