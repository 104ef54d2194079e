"""The checks of ``cdc check``: one function per check, pure, from facts that were read to findings.

``finding`` has the vocabulary, ``facts`` what the edges read, the other modules the checks of one part each.
"""
