"""The work that both snapshots do: tables cut into chunks, and rows read in one transaction."""
