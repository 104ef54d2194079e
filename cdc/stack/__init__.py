"""The local stack without Docker: Postgres, Kafka, Valkey and OpenSearch as ordinary processes.

Read in this order: :mod:`~cdc.stack.local` (what commands and tests call), :mod:`~cdc.stack.supervisor` (the
one process that owns the servers), :mod:`~cdc.stack.part` (what a server is to it), :mod:`~cdc.stack.servers`.
"""
