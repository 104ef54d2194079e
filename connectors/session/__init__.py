"""A capture session: everything that is opened, checked and joined before the first frame is read."""
