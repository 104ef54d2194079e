"""The contract between the log and a store of any kind, and what all stores share."""
