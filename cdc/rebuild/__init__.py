"""A store built anew from the log beside the one in use, then switched to: ``cdc rebuild``.

``rules`` and ``letters`` are pure, ``ports`` says what is asked of the world, and ``run`` takes the steps.
"""
