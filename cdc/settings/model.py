"""The settings file as typed, frozen models: ``cdc.toml``, overridden by ``CDC_*`` environment variables.

Secrets stand as ``env:NAME`` or ``file:PATH`` and show as ``***``. Spark executors never import this module:
what a task needs is passed as plain values.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import passwords_within, remember
from cdc.settings.event_settings import HistorySettings, OutboxSettings, require_native_history, without_outbox
from cdc.settings.mask_rules import MASK_KEY_HINT
from cdc.settings.setting_types import (
    PATH,
    ByteCount,
    ClientOptions,
    ClientSecrets,
    Copies,
    Duration,
    MaskText,
    SecretRef,
    SettingsModel,
    SomeBytes,
    SomeTime,
    Tables,
    Url,
    anchor,
    any_tables,
    named_tables,
)
from cdc.settings.settings_faults import KnownSettings, config_error, faults_of
from cdc.settings.sink_settings import AnySink, Kinds, read_sinks, require_apart
from cdc.settings.stream_settings import StreamRunnerSettings, StreamSettings, named_streams


class SourceSettings(SettingsModel):
    """The Postgres that leads."""

    kind: Literal["postgres", "debezium"] = Field(
        "postgres", description="who captures: cdc run, or Debezium through Kafka Connect"
    )
    dsn: Url = Field(description="libpq connection string, without a password (use password, or passfile=)")
    password: SecretRef | None = Field(None, description="env:NAME, file:PATH or command:PROGRAM")
    tables: Annotated[Tables, BeforeValidator(any_tables)] = Field(description='"schema.table", or "schema.*"')
    exclude: Tables = Field((), description="tables that a pattern would take and that stay out")
    slot: str | None = Field(None, description="replication slot, cdc_<name> unless set", pattern=r"^[a-z0-9_]{1,63}$")
    publication: str | None = Field(None, description="publication, cdc_<name> unless set")
    failover: bool = Field(
        False, description="keep the slot on standbys too, so that capture goes on with a promoted one (PostgreSQL 17)"
    )
    topics: dict[str, str] = Field(
        default_factory=dict, description="table = topic, where the usual name would collide"
    )
    mask_key: SecretRef | None = Field(
        None, description="env:NAME, file:PATH or command:PROGRAM, the key of masks by hmac, at least 32 bytes long"
    )


class TableSettings(SettingsModel):
    """One captured table."""

    columns: dict[str, MaskText] = Field(
        default_factory=dict, description='column = "hmac", "drop" or "truncate:20": masked before it leaves capture'
    )


class LogSettings(SettingsModel):
    """The Kafka cluster and its topics."""

    bootstrap_servers: str = Field(description="host:port, several by comma")
    partitions: int = Field(4, ge=1, le=10_000, description="partitions of each table's topic, never changed later")
    replication_factor: Copies = Field(-1, description="copies of each partition, -1 for the brokers' own number")
    replay_window: SomeTime = Field(
        timedelta(days=7), description="how long deletes are remembered, in the log and in the stores"
    )
    min_compaction_lag: Duration = Field(
        timedelta(minutes=1), description="how long every version of a row stays at least"
    )
    max_message_bytes: SomeBytes = Field(1024**2, description="largest record the table topics take")
    oversized: Literal["stop", "dead-letter"] = Field(
        "dead-letter", description="what to do with a larger one: put it into the dead letters and go on, or stop"
    )
    oversized_tables: dict[str, Literal["stop", "dead-letter"]] = Field(
        default_factory=dict, description='"schema.table" = policy, over the one for all'
    )
    encoding: Literal["readable", "debezium"] = Field(
        "readable", description="form of values (see the wire manual, cdc/wire/README.md)"
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field("lz4", description="producer's compression")
    client: ClientOptions = Field(
        default_factory=dict, description="options of every Kafka client: TLS, SASL, timeouts"
    )
    client_secrets: ClientSecrets = Field(default_factory=dict, description="the same for values that are secret")


class CaptureSettings(SettingsModel):
    """The capture daemon."""

    http_address: str = Field("127.0.0.1:9464", description="metrics and health, empty for none")
    drain_timeout: Duration = Field(timedelta(seconds=30), description="how long SIGTERM may take")
    memory_limit: SomeBytes = Field(64 * 1024**2, description="bytes of records in flight before reading pauses")
    spill_path: str | None = Field(
        None, description="folder for records that do not fit into memory, the system's unless set"
    )
    waiting_limit: ByteCount = Field(
        1024**3, description="buffer for records of locked tables (beyond it the largest table is set aside)"
    )
    waiting_ready: Duration = Field(
        timedelta(minutes=10), description="how long a table may wait, or be set aside, before /readyz says no"
    )


class SnapshotSettings(SettingsModel):
    """The first snapshot, and later ones."""

    workers: int = Field(2, ge=1, le=64, description="processes that read at once")
    chunk_bytes: SomeBytes = Field(64 * 1024**2, description="heap bytes of one chunk")
    lock_timeout: Duration = Field(timedelta(seconds=30), description="how long slot creation and table locks may wait")
    windows: int = Field(2, ge=1, le=16, description="windows that a running capture reads at once, over all tables")
    window_bytes: SomeBytes = Field(4 * 1024**2, description="heap bytes of one window, kept in memory")
    rows_per_second: int = Field(0, ge=0, description="rows that windows read per second at most, 0 for no limit")
    max_retained_wal: ByteCount = Field(
        1024**3, description="WAL kept for the slot beyond which no window is opened until it is less"
    )
    watch: Duration = Field(
        timedelta(seconds=5),
        description="how often to check the catalog for changes that no event announces, 0s for never",
    )
    reread_republished: bool = Field(
        True,
        description="read a table again when its publication was changed and may have left changes out. Set false "
        "where a tool sets the publication again and again",
    )


class SparkSettings(SettingsModel):
    """The Spark application that runs the sinks."""

    master: str = Field("local[2]", description="spark master URL")
    checkpoint: str = Field("checkpoints", description="folder, with one checkpoint per sink below it")
    driver_memory: str = Field("1g", description="heap of the driver")
    max_offsets_per_trigger: int = Field(1_000_000, ge=1, description="records of one batch at most")
    driver_batch_rows: int = Field(20_000, ge=0, description="batches up to this size are applied in the driver")
    stop_together: bool = Field(False, description="a store that cannot go on ends the others as well")
    slice_bytes: ByteCount = Field(32 * 1024**2, ge=1, description="bytes of records read and applied at once")
    view_limit: Duration = Field(
        timedelta(seconds=60), description="a view that is further behind holds no store's LSN"
    )
    http_address: str = Field("127.0.0.1:9465", description="metrics of the sinks, empty for none")
    ui: bool = Field(False, description="serve Spark's own pages, on this machine alone")
    kafka: dict[str, str] = Field(
        default_factory=dict,
        description="options of Spark's Kafka client by Java's names, over those of [log.client]",
    )
    conf: dict[str, str] = Field(default_factory=dict, description="more Spark settings")


class ViewSettings(SettingsModel):
    """One view: a document over several tables for each row of one of them."""

    sql: Annotated[str, PATH] = Field(description="file with the view's SELECT")
    largest: ByteCount = Field(900 * 1024, description="a larger document is parked, by its key")
    state: str = Field("view-state", description="folder of the runner's state, which may be deleted at any time")
    search_path: list[str] = Field(["public"], description="schemas of tables that are named without one")
    partitions: int = Field(0, ge=0, description="partitions of its topic, 0 for as many as [log] sets")
    post: str = Field("", description="module:function, a function of yours that each finished document goes through")
    post_limit: SomeTime = Field(
        timedelta(seconds=5), description="a document for which that function takes longer is parked, by its key"
    )


class ViewRunnerSettings(SettingsModel):
    """``cdc view run``."""

    http_address: str = Field("", description="metrics and health of the views, empty for none")


class LimitSettings(SettingsModel):
    """The limits above which ``cdc status`` ends with 1."""

    lag_bytes: ByteCount = Field(256 * 1024**2, description="WAL not yet in the log")
    lag: Duration = Field(timedelta(seconds=60), description="a store's age")


class DebeziumSettings(SettingsModel):
    """Kafka Connect, where Debezium captures."""

    url: Url = Field("http://127.0.0.1:8083", description="Kafka Connect's REST API")
    user: str | None = Field(None, description="user of basic authentication")
    password: SecretRef | None = Field(None, description="env:NAME, file:PATH or command:PROGRAM")
    ca_certs: str | None = Field(None, description="file of the certificate authority")
    connector: str | None = Field(None, description="connector's name, the pipeline's unless set")
    database: Literal["postgres", "mysql", "mariadb", "mongodb", "oracle", "sqlserver"] = Field(
        "postgres", description="what Debezium reads"
    )
    database_password: str | None = Field(
        None, description="config provider reference, as ${file:/secrets/db.properties:password}"
    )
    kafka_secrets: dict[str, str] = Field(
        default_factory=dict,
        description="[log.client_secrets] as config provider references, for the connector's own clients of Kafka",
    )
    schemas: bool = Field(True, description="each value carries its schema, so that sinks know the types by themselves")
    snapshot_mode: str = Field("initial", description="Debezium's snapshot.mode")
    heartbeat: Duration = Field(timedelta(seconds=10), description="how often an idle connector moves on")
    signal_table: str | None = Field(
        None, description='"schema.table" where the connector marks the parts of a reading, none unless set'
    )
    deploy_timeout: Duration = Field(timedelta(seconds=60), description="how long a connector may take to run")
    options: dict[str, str] = Field(default_factory=dict, description="connector options on top of the generated ones")


class Settings(SettingsModel):
    """One pipeline."""

    name: str = Field(
        description="topic prefix, also the name of slot and publication", pattern=r"^[a-zA-Z][a-zA-Z0-9_-]{0,50}$"
    )
    source: SourceSettings
    tables: Annotated[dict[str, TableSettings], BeforeValidator(named_tables)] = Field(default_factory=dict)
    log: LogSettings
    capture: CaptureSettings = Field(default_factory=CaptureSettings)
    snapshot: SnapshotSettings = Field(default_factory=SnapshotSettings)
    sinks: dict[str, AnySink] = Field(default_factory=dict)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    views: dict[str, ViewSettings] = Field(default_factory=dict)
    view_runner: ViewRunnerSettings = ViewRunnerSettings()
    streams: Annotated[dict[str, StreamSettings], BeforeValidator(named_streams)] = Field(default_factory=dict)
    stream_runner: StreamRunnerSettings = StreamRunnerSettings()
    limits: LimitSettings = Field(default_factory=LimitSettings)
    debezium: DebeziumSettings | None = None
    outbox: OutboxSettings | None = None
    history: HistorySettings = Field(default_factory=HistorySettings)

    def require_native(self, command: str) -> None:
        """ConfigError where Debezium captures: two writers in one topic would undo each other."""
        if self.source.kind == "debezium":
            raise ConfigError(
                f"[source] kind is debezium, so {command} has nothing to do",
                hint="cdc connect deploy lets Debezium capture; cdc connect signal asks it for a snapshot",
            )

    @property
    def slot(self) -> str:
        """The slot's name: as set, or ``cdc_`` and the pipeline's name."""
        return self.source.slot or "cdc_" + re.sub(r"[^a-z0-9_]", "_", self.name.lower())

    @property
    def publication(self) -> str:
        """The publication's name: as set, or ``cdc_`` and the pipeline's name."""
        return self.source.publication or "cdc_" + re.sub(r"[^a-z0-9_]", "_", self.name.lower())


def load(path: Path, environment: dict[str, str] | None = None, kinds: Kinds | None = None) -> Settings:
    """Read and check a settings file. ConfigError says what is wrong where, with a "did you mean".

    ``kinds``: checks the sinks' sections as well, which are :class:`UnreadSink` without it.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no settings file {path}", hint="cdc config example > cdc.toml") from None
    except OSError as error:
        hint = "--config names the file itself, which you have to be allowed to read"
        raise ConfigError(f"the settings file {path} cannot be read: {error.strerror}", hint=hint) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"{path} is not UTF-8 text, as TOML has to be (line {line})", hint="save it in the encoding UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="cdc config example prints a file that is") from None
    anchor(document, path.absolute().parent, partial(_model_of, kinds))
    laid = overlay(document, dict(os.environ) if environment is None else environment)
    return parse(document, str(path), laid, kinds)


def _model_of(kinds: Kinds | None, section: str, part: Mapping[str, Any]) -> type[BaseModel] | None:
    if section == "views":
        return ViewSettings
    if section == "streams":
        return StreamSettings
    kind = part.get("kind")
    return kinds.model(kind) if kinds is not None and isinstance(kind, str) else None


def parse(
    document: dict[str, Any],
    origin: str = "the settings",
    laid: Mapping[tuple[str, ...], str] | None = None,
    kinds: Kinds | None = None,
) -> Settings:
    """Check a document. ConfigError with every fault. ``laid``: see :func:`overlay`."""
    remember(passwords_within(document))
    sinks, faults = read_sinks(document, kinds) if kinds is not None else ({}, [])
    try:
        settings = Settings.model_validate(document)
    except ValidationError as error:
        faults = [*faults_of(error), *faults]
    if faults:
        raise config_error(faults, origin, KnownSettings(SECTIONS, document, kinds), laid or {}) from None
    if settings.source.mask_key is None and any("hmac" in t.columns.values() for t in settings.tables.values()):
        raise ConfigError(f"{origin}: a mask by hmac needs a key", hint=MASK_KEY_HINT)
    if settings.source.kind == "debezium" and any(table.columns for table in settings.tables.values()):
        raise ConfigError(
            f"{origin}: columns are masked under [tables], which the native capture alone does",
            hint='[source] kind = "postgres" keeps the masks; or take them out: [debezium.options] has Debezium\'s own',
        )
    for kept in ("view", "stream") if settings.source.kind == "debezium" else ():
        if settings.views if kept == "view" else settings.streams:
            raise ConfigError(
                f"{origin}: no {kept} is kept over Debezium's topics: they do not say which transactions are whole",
                hint=f"leave the sections [{kept}s.NAME] out; {kept}s are over tables that cdc run captures",
            )
    require_apart(sinks, settings.name, origin)
    require_native_history(settings.history, settings.source.kind, origin)
    exclude = without_outbox(settings.outbox, settings.source.kind, settings.source.tables, origin)
    source = settings.source.model_copy(update={"exclude": (*settings.source.exclude, *exclude)})
    return settings.model_copy(update={"sinks": {**settings.sinks, **sinks}, "source": source})


SECTIONS: Mapping[str, type[BaseModel]] = {
    "": Settings,
    "source": SourceSettings,
    "log": LogSettings,
    "capture": CaptureSettings,
    "snapshot": SnapshotSettings,
    "spark": SparkSettings,
    "limits": LimitSettings,
    "debezium": DebeziumSettings,
    "outbox": OutboxSettings,
    "history": HistorySettings,
}
"""The sections by name, but the sinks' own."""


def topics_maker(settings: Settings) -> str:
    """The command that makes the pipeline's topics."""
    return "cdc connect deploy" if settings.source.kind == "debezium" else "cdc init"


def is_postgres(settings: Settings) -> bool:
    """Whether the source is a Postgres, captured by us or by Debezium."""
    return settings.source.kind == "postgres" or settings.debezium is None or settings.debezium.database == "postgres"


def require_postgres(settings: Settings, command: str) -> None:
    """ConfigError where a command needs LSNs or rows of Postgres, and Debezium reads another database."""
    if not is_postgres(settings):
        assert settings.debezium is not None
        database = settings.debezium.database
        raise ConfigError(
            f"{command} asks Postgres, and this pipeline's source is {database}, which cannot be asked",
            hint="cdc connect status shows how far the connector is, cdc status how many records a store is behind",
        )


OURS = frozenset({"CDC_CONFIG", "CDC_CRASH_AT"})


def overlay(document: dict[str, Any], environment: dict[str, str]) -> dict[tuple[str, ...], str]:
    """Put ``CDC_SECTION__KEY`` variables over the document, in place. Values are TOML where they parse as it.

    ``CDC_NAME`` is the pipeline's name, the one setting without a section. Returns which place was set by which
    variable. ConfigError for a variable whose section is none.
    """
    laid: dict[tuple[str, ...], str] = {}
    for variable, text in sorted(environment.items()):
        if variable in OURS or not variable.startswith("CDC_") or not ("__" in variable or variable == "CDC_NAME"):
            continue
        place = tuple(variable[len("CDC_") :].lower().split("__"))
        target: Any = document
        for part in place[:-1]:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise ConfigError(
                    f"the environment variable {variable} names a section, and {part} is none",
                    hint="a list is one variable: CDC_SOURCE__TABLES='[\"public.orders\"]'",
                )
        target[place[-1]] = _value(text)
        laid[place] = f"the environment variable {variable}"
    return laid


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
