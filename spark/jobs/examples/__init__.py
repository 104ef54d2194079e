"""Programs of users, to be copied: they use ``format("headrace")`` and nothing else of this package."""
