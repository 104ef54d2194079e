"""The checks of ``cdc check``: one function per check, pure, from facts that were read to findings.

``findings`` has the vocabulary, ``preflight`` the order and what the edges read, the others the checks of one part.
"""
