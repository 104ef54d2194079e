"""What still holds a row that was deleted in the source, place by place, and until when: ``cdc forget``.

``rules`` and the histories are pure, ``ports`` says what is asked of the world, and ``run`` looks, cleans and waits.
"""
