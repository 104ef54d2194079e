"""Source against stores, row by row: how ``cdc verify`` knows.

A *cut* is one REPEATABLE READ transaction on the source with a fence in the log behind it. Once a store's
watermark has passed the fence, every key in it must hold what the cut holds, unless the key has moved on since:
then the store's own position says so. ``passes`` is the argument, ``spool`` keeps it within bounded memory, ``result``
is what comes out, ``repair`` puts it right.
"""
