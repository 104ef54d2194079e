"""A settings file for a database that is there, and the rights that capture needs of it: ``cdc config new``.

:mod:`~cdc.proposal.proposed` decides which tables are taken, and :mod:`~cdc.proposal.texts` writes both files. Both are
pure.
"""
