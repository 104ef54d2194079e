"""From Postgres's text to the wire's JSON, by functions compiled once for each table. No I/O."""
