"""MySQL and MariaDB, asked for their rows: what ``cdc verify`` compares with where Debezium captures one of them.

Read in this order: :mod:`~connectors.mysql.gtid` (has the connector passed a place?), :mod:`~connectors.mysql.columns`
(which text a value has in the stores), :mod:`~connectors.mysql.session` and :mod:`~connectors.mysql.binlog_cut` (one
state of the server, and its rows).
"""
