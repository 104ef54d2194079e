"""One writer after the other on the same topics, without a new snapshot: ``cdc connect handover``.

``keys`` and ``rules`` are pure, ``ports`` says what is asked of the world, and ``run`` takes the steps.
"""
