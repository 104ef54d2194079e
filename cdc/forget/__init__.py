"""What the pipeline keeps of a row that was deleted in the source, and for how long: ``cdc forget``. Pure."""
