"""What the warehouses share: columns and rows."""
