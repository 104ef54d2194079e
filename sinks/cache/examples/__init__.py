"""Programs of users, to be copied: they use ``cdc.read`` and nothing else of this package."""
