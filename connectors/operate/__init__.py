"""The servers' side of each command of an operator: Postgres, Kafka, Connect and the stores behind the commands'
ports."""
