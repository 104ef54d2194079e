"""The checks of ``cdc check``: one function per check, pure, from facts that were read to findings."""
