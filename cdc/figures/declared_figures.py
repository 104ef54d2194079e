"""Every figure that a process of ours shows, declared once: the pages and their manual are made from it."""

from __future__ import annotations

from cdc.figures.http_server import Figure, declared


def _gauge(name: str, text: str, *labels: str, known: str = "", absent: str = "") -> Figure:
    return Figure(name=name, kind="gauge", text=text, labels=labels, known=known, absent=absent)


def _counter(name: str, text: str, *labels: str) -> Figure:
    return Figure(name=name, kind="counter", text=text, labels=labels)


def _histogram(name: str, text: str, *labels: str) -> Figure:
    return Figure(name=name, kind="histogram", text=text, labels=labels)


_LAG, _SLOT = "cdc_source_lag_known", "cdc_slot_known"
_SINK_LAG, _SINK_STATE = "cdc_sink_lag_known", "cdc_sink_state_known"
_QUERY = "cdc_query_known"

BUILD = _gauge("cdc_build_info", "1, with the version of Headrace", "version")

CAPTURE = declared(
    _gauge("cdc_up", "1 while changes flow, else 0"),
    BUILD,
    _gauge(_LAG, "Whether the lag is known: 1 while changes flow and the source answers"),
    _gauge(
        "cdc_source_lag_seconds",
        "Age of the oldest change that the broker does not hold, by its commit time, or since when the source is ahead "
        "of all that it has sent. 0 when it lacks none",
        known=_LAG,
    ),
    _gauge(
        "cdc_source_lag_bytes",
        "WAL behind the source, by stage: received, produced, acked, flushed",
        "stage",
        known=_LAG,
    ),
    _gauge("cdc_source_lag_age_seconds", "Since the lag was last known, or since the start"),
    _histogram(
        "cdc_freshness_seconds",
        "From a commit to the broker holding it, by origin: change, or heartbeat while the source is idle",
        "origin",
    ),
    _counter("cdc_transactions_total", "Transactions seen"),
    _histogram("cdc_transaction_rows", "Rows of a transaction"),
    _counter("cdc_records_total", "Records handed to the broker, tombstones too"),
    _counter("cdc_record_bytes_total", "Bytes of their values"),
    _counter("cdc_events_total", "Events by table and operation", "table", "op"),
    _counter("cdc_outbox_total", "Of the outbox: events, updates of its table, what is no event", "what"),
    _counter("cdc_reselected_rows_total", "Rows read again for unchanged TOAST values"),
    _counter("cdc_unavailable_values_total", "Values written as null", "table", "column"),
    _counter("cdc_reconnects_total", "Times the stream was opened again"),
    _counter("cdc_errors_total", "What went wrong, by class", "class"),
    _gauge("cdc_queue_records", "Records that the broker has not answered for"),
    _gauge("cdc_feedback_age_seconds", "Since Postgres last heard from us, or since the start"),
    _gauge("cdc_waiting_records", "Records of a table that waits", "table", absent="no table waits"),
    _gauge(
        "cdc_table_state",
        "1 for a table that waits, is set aside or is read again after that",
        "table",
        "state",
        "cause",
        absent="every table is followed",
    ),
    _gauge("cdc_reread_requests", "Tables or parts to be read again: waiting, running, paused", "state"),
    _gauge("cdc_reread_windows", "Windows open in the stream"),
    _counter("cdc_reread_rows_total", "Rows read again and written, since the stream was opened"),
    _counter("cdc_reread_left_out_rows_total", "Rows read again that the stream had newer"),
    _counter(
        "cdc_reread_differing_rows_total", "Rows that tables read again had otherwise than the log, or not at all"
    ),
    _gauge("cdc_reread_progress_ratio", "How much of a table is read again", "table", absent="none is read again"),
    _gauge(
        "cdc_reread_remaining_seconds",
        "Until it is read, at the pace of the last minutes. +Inf while it stands still",
        "table",
        absent="none is read again, or its pace is not known yet",
    ),
    _gauge("cdc_snapshot_progress_ratio", "How much of the first snapshot is done", absent="none is waited for"),
    _gauge(
        "cdc_snapshot_remaining_seconds",
        "Until it is done, at the pace of the last minutes. +Inf while it stands still",
        absent="none is waited for, or its pace is not known yet",
    ),
    _gauge(_SLOT, "Whether the slot was seen in the last 30 s"),
    _gauge("cdc_slot_active", "Whether somebody reads the slot", known=_SLOT),
    _gauge("cdc_slot_retained_wal_bytes", "WAL that the server keeps for the slot", known=_SLOT, absent="on a standby"),
    _gauge(
        "cdc_slot_safe_wal_bytes",
        "WAL that may still be written before the slot can be lost",
        known=_SLOT,
        absent="max_slot_wal_keep_size sets no limit",
    ),
    _gauge(
        "cdc_slot_loss_seconds",
        "Until the slot can be lost, at the pace of the last 10 minutes. +Inf while what is left does not shrink",
        known=_SLOT,
        absent="there is no limit, or the pace is not known yet",
    ),
    _gauge("cdc_slot_wal_status", "1 for the state of the slot's WAL, 0 for the others", "status", known=_SLOT),
    _gauge(
        "cdc_slot_held_by",
        "1 for what keeps the slot's WAL, 0 for the others. A store never does",
        "stage",
        known=_SLOT,
        absent="on a standby",
    ),
    _gauge(
        "cdc_slot_xmin_age_transactions",
        "Age of the oldest row version that the slot keeps in all tables",
        known=_SLOT,
        absent="it keeps none",
    ),
    _gauge(
        "cdc_slot_catalog_xmin_age_transactions",
        "The same of the catalog's tables",
        known=_SLOT,
        absent="it keeps none",
    ),
    _gauge("cdc_slot_look_age_seconds", "Since the slot was last seen, or since the start"),
)
"""The figures of ``cdc run``."""

SINKS = declared(
    BUILD,
    _gauge("cdc_sink_up", "1 while the store answers and takes writes, else 0", "sink"),
    _gauge("cdc_sink_stopped", "Whether the store stands still until the next start", "sink"),
    _gauge("cdc_sink_answer_age_seconds", "Since the store last answered, or since the start", "sink"),
    _gauge("cdc_sink_log_age_seconds", "Since Kafka last answered where the topics end, or since the start"),
    _gauge(
        _SINK_LAG,
        "Whether it is known what the store lacks: 1 while both Kafka and the store answer",
        "sink",
    ),
    _gauge(
        "cdc_sink_lag_seconds",
        "Age of the oldest record that the store does not show, by its commit time. 0 when it lacks none",
        "sink",
        known=_SINK_LAG,
    ),
    _gauge(
        "cdc_sink_backlog_records",
        "Records of the log that the store does not show, those that the cleaner took counted",
        "sink",
        known=_SINK_LAG,
    ),
    _gauge(
        "cdc_sink_backlog_bytes",
        "Their keys and values, estimated: records times the mean of those that were read",
        "sink",
        known=_SINK_LAG,
        absent="nothing was read yet",
    ),
    _gauge(
        "cdc_sink_fill_progress_ratio",
        "The share of the log, as of the beginning of the fill, that the store has read",
        "sink",
        known=_SINK_LAG,
        absent="no fill runs",
    ),
    _gauge(
        "cdc_sink_fill_remaining_seconds",
        "Until it has read all of it, at the pace of the last minutes. +Inf while it stands still",
        "sink",
        known=_SINK_LAG,
        absent="no fill runs, or its pace is not known yet",
    ),
    _histogram(
        "cdc_sink_freshness_seconds",
        "From a commit to the store showing it, by origin: change, or heartbeat while the source is idle. Without the "
        "rows of snapshots and fills",
        "sink",
        "origin",
    ),
    _gauge(_SINK_STATE, "Whether the store answers and its watermark is known", "sink"),
    _gauge("cdc_sink_applied_lsn", "The LSN below which the store shows every change", "sink", known=_SINK_STATE),
    _gauge("cdc_sink_parked_keys", "Keys that wait behind a dead letter", "sink", known=_SINK_STATE),
    _gauge("cdc_sink_held_tables", "Tables that the store cannot take", "sink", known=_SINK_STATE),
    _counter("cdc_sink_records_total", "Records read from the topics", "sink"),
    _counter("cdc_sink_record_bytes_total", "Bytes of their keys and values", "sink"),
    _counter("cdc_sink_applied_rows_total", "Rows written to the store", "sink"),
    _counter("cdc_sink_deleted_rows_total", "Rows deleted from the store", "sink"),
    _counter("cdc_sink_stale_events_total", "Events older than the store, or below a floor", "sink"),
    _counter("cdc_sink_dead_letters_total", "Records sent to the dead letters, by why", "sink", "why"),
    _histogram("cdc_sink_batch_seconds", "One slice of a batch, read to watermark", "sink"),
    _counter("cdc_sink_restarts_total", "Starts of a query after its first", "sink"),
    _counter("cdc_query_batches_total", "Batches that Spark ran", "query"),
    _gauge(_QUERY, "Whether Spark spoke of the query within the last 30 s", "query"),
    _gauge(
        "cdc_query_offsets_behind",
        "Offsets of the log behind the query's last batch, when that was planned",
        "query",
        known=_QUERY,
        absent="Spark has not said",
    ),
)
"""The figures of ``cdc sink``."""

_VIEW_LAG = "cdc_view_lag_known"

VIEWS = declared(
    BUILD,
    _gauge("cdc_view_stopped", "Whether the view cannot go on until the next start", "view"),
    _gauge(_VIEW_LAG, "Whether the runner has read the ends of the log for the view in the last 30 s", "view"),
    _gauge(
        "cdc_view_lag_seconds",
        "Since when the view lacks something that the log holds. 0 when it lacks nothing",
        "view",
        known=_VIEW_LAG,
    ),
    _gauge(
        "cdc_view_applied_lsn",
        "The LSN below which every change is published",
        "view",
        known=_VIEW_LAG,
        absent="its first build is not whole",
    ),
    _gauge("cdc_view_waiting_keys", "Keys whose documents are to be published", "view", known=_VIEW_LAG),
    _gauge("cdc_view_parked_keys", "Keys whose documents cannot be published", "view", known=_VIEW_LAG),
    _gauge(
        "cdc_view_held",
        "Whether its LSN stays, because the log lacks rows of one of its tables",
        "view",
        known=_VIEW_LAG,
    ),
    _gauge("cdc_view_state_bytes", "The runner's state on disk", "view", known=_VIEW_LAG),
    _counter("cdc_view_records_total", "Records read from the tables' topics", "view"),
    _counter("cdc_view_published_rows_total", "Documents published", "view"),
    _counter("cdc_view_deleted_rows_total", "Deletions of documents published", "view"),
)
"""The figures of ``cdc view run``."""

_STREAM_LAG, _NO_BATCH = "cdc_stream_lag_known", "it has published no batch"

STREAMS = declared(
    BUILD,
    _gauge("cdc_stream_stopped", "Whether the stream cannot go on until the next start", "stream"),
    _gauge(_STREAM_LAG, "Whether the ends of the log were read for the stream in the last 30 s", "stream"),
    _gauge(
        "cdc_stream_lag_seconds",
        "Since when the stream lacks something that the log holds. 0 when it lacks nothing",
        "stream",
        known=_STREAM_LAG,
    ),
    _gauge(
        "cdc_stream_batch",
        "Number of the newest published batch, from 0 in each generation",
        "stream",
        absent=_NO_BATCH,
    ),
    _gauge("cdc_stream_state_rows", "Rows of its state, in all partitions", "stream", absent=_NO_BATCH),
    _gauge(
        "cdc_stream_state_partitions",
        "State stores of Spark: one for each partition of an aggregation, four of a join",
        "stream",
        absent=_NO_BATCH,
    ),
    _counter(
        "cdc_stream_set_apart_events_total", "Events set apart, by reason, of this generation", "stream", "reason"
    ),
    _counter("cdc_stream_published_rows_total", "Rows of its result published since the start", "stream"),
)
"""The figures of ``cdc stream run``."""
