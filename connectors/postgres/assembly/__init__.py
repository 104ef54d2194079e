"""From messages to records in order: transactions, key changes, missing values, tables that wait."""
