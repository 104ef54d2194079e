"""The places that still hold a row which was deleted in the source, and until when: ``cdc forget``.

``rules`` and the histories are pure, ``ports`` says what is asked of the world, and ``run`` looks, cleans and waits.
"""
