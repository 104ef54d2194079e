"""The settings file as typed, frozen models: ``cdc.toml``, overridden by ``CDC_*`` environment variables.

Secrets stand as ``env:NAME`` or ``file:PATH`` and show as ``***``. Spark executors never import this module:
what a task needs is passed as plain values.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from cdc.environment import overlay
from cdc.errors import ConfigError
from cdc.foreign import remember
from cdc.settings_faults import config_error

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = re.compile(r"(\d+)\s*(B|kB|MB|GB)?")
_UNIT_BYTES = {None: 1, "B": 1, "kB": 1024, "MB": 1024**2, "GB": 1024**3}


def _duration(value: Any) -> Any:
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError('a duration is a number and a unit: "500ms", "30s", "10m", "12h" or "7d"')
        return timedelta(seconds=float(match[1]) * _UNIT_S[match[2]])
    if isinstance(value, int | float):
        raise ValueError(f'a duration has a unit: "{value:g}s", "{value:g}m", "{value:g}h" or "{value:g}d"')
    return value


def _byte_count(value: Any) -> Any:
    if isinstance(value, str):
        match = _BYTES.fullmatch(value.strip())
        if match is None:
            raise ValueError('a size is a number and a unit: "900kB", "16MB" or "2GB"')
        return int(match[1]) * _UNIT_BYTES[match[2]]
    if isinstance(value, int) and value < 0:
        raise ValueError('a size is not below 0: "900kB", "16MB" or "2GB"')
    return value


def _some(value: Any) -> Any:
    if not value:
        raise ValueError("this has to be more than 0")
    return value


def _tables(value: Any) -> Any:
    """Each with its schema: without one the server's search_path would decide."""
    for name in value if isinstance(value, list | tuple) else ():
        if isinstance(name, str) and "." not in name.strip("."):
            raise ValueError(
                f'{name!r} lacks its schema (or database): write "schema.{name}", or "schema.*" for all of a schema'
            )
    return value


def _any_tables(value: Any) -> Any:
    if isinstance(value, list | tuple) and not value:
        raise ValueError('no table is named: write tables = ["schema.table"], or "schema.*" for all of a schema')
    return value


Tables = Annotated[tuple[str, ...], BeforeValidator(_tables)]


Duration = Annotated[timedelta, BeforeValidator(_duration), PlainSerializer(lambda d: f"{d.total_seconds():g}s")]
ByteCount = Annotated[int, BeforeValidator(_byte_count)]
SomeTime = Annotated[Duration, AfterValidator(_some)]
SomeBytes = Annotated[ByteCount, AfterValidator(_some)]


class Secret:
    """A password or key by reference; shows as ``***`` wherever it is printed.

    ``env:NAME`` and ``file:PATH`` are read when :meth:`reveal` is called, so a rotated secret is picked up.
    """

    __slots__ = ("_reference",)

    def __init__(self, reference: str) -> None:
        if not reference.startswith(("env:", "file:")):
            raise ValueError('a secret is written as "env:NAME" or "file:PATH", never as itself')
        self._reference = reference

    def reveal(self) -> str:
        """The secret itself; ConfigError names the variable or file that is missing, never a value."""
        kind, _, where = self._reference.partition(":")
        revealed = self._from_environment(where) if kind == "env" else self._from_file(where)
        remember([revealed])
        return revealed

    @staticmethod
    def _from_environment(name: str) -> str:
        if name not in os.environ:
            raise ConfigError(f"the environment variable {name} is not set", hint=f"export {name}=... first")
        return os.environ[name]

    @staticmethod
    def _from_file(path: str) -> str:
        hint = 'write the secret alone into that file, readable by you alone; or use "env:NAME"'
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigError(f"the secret file {path} cannot be read: {error.strerror}", hint=hint) from None
        except UnicodeDecodeError:
            raise ConfigError(f"the secret file {path} is not UTF-8 text", hint=hint) from None

    @property
    def reference(self) -> str:
        """Where it comes from: safe to print."""
        return self._reference

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def _plain_url(value: Any) -> Any:
    """A URL with a password in it that is not percent-encoded is cut in other places than meant, and then shown."""
    if isinstance(value, str) and "://" in value and value.partition("?")[0].count("@") > 1:
        raise ValueError('this URL has more than one @: move the password out of it, to password = "env:NAME"')
    return value


Url = Annotated[str, BeforeValidator(_plain_url)]


def _secret(value: Any) -> Any:
    return Secret(value) if isinstance(value, str) else value


SecretRef = Annotated[Secret, BeforeValidator(_secret), PlainSerializer(lambda s: s.reference)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class SourceSettings(_Model):
    """The Postgres that leads."""

    kind: Literal["postgres", "debezium"] = Field(
        "postgres", description="who captures: cdc run, or Debezium through Kafka Connect"
    )
    dsn: Url = Field(description="libpq connection string; no password in it (use password, or passfile=)")
    password: SecretRef | None = Field(None, description="env:NAME or file:PATH")
    tables: Annotated[Tables, BeforeValidator(_any_tables)] = Field(description='"schema.table", or "schema.*"')
    exclude: Tables = Field((), description="tables that a pattern would take and that stay out")
    slot: str | None = Field(None, description="replication slot; cdc_<name> unless set", pattern=r"^[a-z0-9_]{1,63}$")
    publication: str | None = Field(None, description="publication; cdc_<name> unless set")
    failover: bool = Field(
        False, description="standbys keep the slot too, so that a promoted one is gone on with; PostgreSQL 17 or later"
    )
    topics: dict[str, str] = Field(
        default_factory=dict, description="table = topic, where the usual name would collide"
    )


class LogSettings(_Model):
    """The Kafka cluster and its topics."""

    bootstrap_servers: str = Field(description="host:port, several by comma")
    partitions: int = Field(4, ge=1, le=10_000, description="partitions of each table's topic; never changed later")
    replication_factor: int = Field(1, ge=1, description="copies of each partition")
    replay_window: SomeTime = Field(
        timedelta(days=7), description="how long deletes are remembered, in the log and in the stores"
    )
    min_compaction_lag: Duration = Field(
        timedelta(minutes=1), description="how long every version of a row stays at least"
    )
    max_message_bytes: SomeBytes = Field(1024**2, description="largest record the table topics take")
    oversized: Literal["stop", "dead-letter"] = Field(
        "stop", description="what to do with a larger one: stop, or put it into the dead letters and go on"
    )
    oversized_tables: dict[str, Literal["stop", "dead-letter"]] = Field(
        default_factory=dict, description='"schema.table" = policy, over the one for all'
    )
    encoding: Literal["readable", "debezium"] = Field(
        "readable", description="how values are written; see the wire manual"
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field("lz4", description="producer's compression")
    client: dict[str, str | int | bool] = Field(
        default_factory=dict, description="passed to every Kafka client: TLS, SASL"
    )
    client_secrets: dict[str, SecretRef] = Field(
        default_factory=dict, description="the same for values that are secret"
    )


class CaptureSettings(_Model):
    """The capture daemon."""

    http_address: str = Field("127.0.0.1:9464", description="metrics and health; empty for none")
    drain_timeout: Duration = Field(timedelta(seconds=30), description="how long SIGTERM may take")
    memory_limit: SomeBytes = Field(64 * 1024**2, description="bytes of records in flight before reading pauses")
    spill_path: str | None = Field(
        None, description="folder for what does not fit into memory; the system's unless set"
    )
    waiting_limit: ByteCount = Field(
        1024**3, description="records kept of tables that are locked; beyond it the whole stream waits"
    )
    waiting_ready: Duration = Field(
        timedelta(minutes=10), description="how long a table may wait before /readyz says no"
    )


class SnapshotSettings(_Model):
    """The first snapshot, and later ones."""

    workers: int = Field(2, ge=1, le=64, description="processes that read at once")
    chunk_bytes: SomeBytes = Field(64 * 1024**2, description="heap bytes of one chunk")
    lock_timeout: Duration = Field(timedelta(seconds=30), description="how long slot creation and table locks may wait")
    windows: int = Field(2, ge=1, le=16, description="windows that a running capture reads at once, over all tables")
    window_bytes: SomeBytes = Field(4 * 1024**2, description="heap bytes of one window, held in memory")
    rows_per_second: int = Field(0, ge=0, description="rows that windows read per second at most; 0 for no limit")
    max_retained_wal: ByteCount = Field(
        1024**3, description="WAL kept for the slot beyond which no window is opened until it is less"
    )
    watch: Duration = Field(
        timedelta(seconds=5), description="how often the catalog is looked at for what no event tells; 0s for never"
    )
    reread_republished: bool = Field(
        True,
        description="read a table again when its publication was changed and may have left changes out; false where "
        "a tool sets the publication again and again",
    )


class _SinkSettings(_Model):
    tables: Tables = Field((), description="only these; all captured tables unless set")
    prefix: str | None = Field(None, description="the pipeline's name unless set")


class RedisSinkSettings(_SinkSettings):
    """A cache in Redis or Valkey."""

    kind: Literal["redis"] = Field("redis", description="Redis or Valkey")
    url: Url = Field(description="redis://host:port/db or rediss://")
    password: SecretRef | None = Field(None, description="env:NAME or file:PATH")


class OpenSearchSinkSettings(_SinkSettings):
    """A search index in OpenSearch or Elasticsearch."""

    kind: Literal["opensearch"] = Field("opensearch", description="OpenSearch or Elasticsearch")
    url: Url = Field(description="http(s)://host:port")
    user: str | None = Field(None, description="user of basic authentication")
    password: SecretRef | None = Field(None, description="env:NAME or file:PATH")
    ca_certs: str | None = Field(None, description="file of the certificate authority")
    shards: int = Field(1, ge=1, description="primary shards of each new index")
    replicas: int = Field(0, ge=0, description="copies of each shard")
    json_mapping: Literal["flat_object", "object", "text"] = Field(
        "flat_object", description="how json and jsonb are indexed"
    )


class DeltaSinkSettings(_SinkSettings):
    """A warehouse of Delta tables, written without a JVM."""

    kind: Literal["delta"] = Field("delta", description="Delta tables")
    path: str = Field(description="folder or object store URL")
    storage_options: dict[str, str] = Field(default_factory=dict, description="passed to the object store")
    storage_secrets: dict[str, SecretRef] = Field(
        default_factory=dict, description="the same for values that are secret"
    )


class SqlSinkSettings(_SinkSettings):
    """A warehouse in any database SQLAlchemy speaks."""

    kind: Literal["sql"] = Field("sql", description="tables of a database")
    url: Url = Field(description="SQLAlchemy url without a password")
    password: SecretRef | None = Field(None, description="env:NAME or file:PATH")
    db_schema: str | None = Field(
        None, description="schema for the tables; the source's schema in the table name unless set"
    )


SinkSettings = Annotated[
    RedisSinkSettings | OpenSearchSinkSettings | DeltaSinkSettings | SqlSinkSettings, Field(discriminator="kind")
]


class SparkSettings(_Model):
    """The Spark application that runs the sinks."""

    master: str = Field("local[2]", description="spark master URL")
    checkpoint: str = Field("checkpoints", description="folder; one checkpoint per sink below it")
    driver_memory: str = Field("1g", description="heap of the driver")
    fan_out: bool = Field(False, description="one query for all sinks: fresher, less isolated")
    max_offsets_per_trigger: int = Field(1_000_000, ge=1, description="records of one batch at most")
    driver_batch_rows: int = Field(20_000, ge=0, description="batches up to this size are applied in the driver")
    stop_together: bool = Field(False, description="a store that cannot go on ends the others as well")
    slice_bytes: ByteCount = Field(32 * 1024**2, ge=1, description="bytes of records read and applied at once")
    http_address: str = Field("127.0.0.1:9465", description="metrics of the sinks; empty for none")
    conf: dict[str, str] = Field(default_factory=dict, description="more Spark settings")


class LimitSettings(_Model):
    """What ``cdc status`` calls too far behind."""

    lag_bytes: ByteCount = Field(256 * 1024**2, description="WAL not yet in the log")
    lag: Duration = Field(timedelta(seconds=60), description="a store's age")


class DebeziumSettings(_Model):
    """Kafka Connect, where Debezium captures."""

    url: Url = Field("http://127.0.0.1:8083", description="Kafka Connect's REST API")
    user: str | None = Field(None, description="user of basic authentication")
    password: SecretRef | None = Field(None, description="env:NAME or file:PATH")
    ca_certs: str | None = Field(None, description="file of the certificate authority")
    connector: str | None = Field(None, description="connector's name; the pipeline's unless set")
    database: Literal["postgres", "mysql", "mariadb", "mongodb", "oracle", "sqlserver"] = Field(
        "postgres", description="what Debezium reads"
    )
    database_password: str | None = Field(
        None, description="config provider reference, as ${file:/secrets/db.properties:password}"
    )
    schemas: bool = Field(True, description="each value carries its schema, so that sinks know the types by themselves")
    snapshot_mode: str = Field("initial", description="Debezium's snapshot.mode")
    heartbeat: Duration = Field(timedelta(seconds=10), description="how often an idle connector moves on")
    signal_table: str | None = Field(
        None, description='"schema.table" that takes signals; a Kafka topic and no table unless set'
    )
    deploy_timeout: Duration = Field(timedelta(seconds=60), description="how long a connector may take to run")
    options: dict[str, str] = Field(default_factory=dict, description="connector options on top of the generated ones")


class Settings(_Model):
    """One pipeline."""

    name: str = Field(
        description="topic prefix; also names slot and publication", pattern=r"^[a-zA-Z][a-zA-Z0-9_-]{0,50}$"
    )
    source: SourceSettings
    log: LogSettings
    capture: CaptureSettings = Field(default_factory=CaptureSettings)
    snapshot: SnapshotSettings = Field(default_factory=SnapshotSettings)
    sinks: dict[str, SinkSettings] = Field(default_factory=dict)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    debezium: DebeziumSettings | None = None

    def require_native(self, command: str) -> None:
        """ConfigError where Debezium captures: two writers in one topic would undo each other."""
        if self.source.kind == "debezium":
            raise ConfigError(
                f"[source] kind is debezium, so {command} has nothing to do",
                hint="cdc connect deploy lets Debezium capture; cdc connect signal asks it for a snapshot",
            )

    @property
    def slot(self) -> str:
        return self.source.slot or "cdc_" + re.sub(r"[^a-z0-9_]", "_", self.name.lower())

    @property
    def publication(self) -> str:
        return self.source.publication or "cdc_" + re.sub(r"[^a-z0-9_]", "_", self.name.lower())


def load(path: Path, environment: dict[str, str] | None = None) -> Settings:
    """Read and check a settings file. ConfigError says what is wrong where, with a "did you mean"."""
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
    laid = overlay(document, dict(os.environ) if environment is None else environment)
    return parse(document, str(path), laid)


def parse(
    document: dict[str, Any], origin: str = "the settings", laid: Mapping[tuple[str, ...], str] | None = None
) -> Settings:
    """Check a document; ConfigError with the fault that explains the others. ``laid``: see :func:`overlay`."""
    remember(_passwords_within(document))
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        raise config_error(error, origin, _known, laid or {}) from None


def _passwords_within(value: Any) -> Iterator[str]:
    """Passwords in URLs and libpq strings, against the manual's advice: anywhere, in a document not yet checked."""
    match value:
        case dict():
            for member in value.values():
                yield from _passwords_within(member)
        case list() | tuple():
            for member in value:
                yield from _passwords_within(member)
        case str():
            if "://" in value and "@" in value:
                # Up to the last @: one that is not percent-encoded belongs to the password.
                yield value.partition("://")[2].rpartition("@")[0].partition(":")[2]
            for found in _PASSWORD.finditer(value):
                yield found[1] or found[2]


_PASSWORD = re.compile(r"""(?:^|\s)password\s*=\s*(?:'((?:[^'\\]|\\.)*)'|([^\s']+))""")


def _known(path: Sequence[str], kind: str | None) -> list[str]:
    """Names of the settings that exist at ``path``; ``kind``: of the sink there, if it has one."""
    if not path:
        return list(Settings.model_fields)
    if path[0] == "sinks":
        models = (RedisSinkSettings, OpenSearchSinkSettings, DeltaSinkSettings, SqlSinkSettings)
        fitting = [one for one in models if kind in (None, one.model_fields["kind"].default)]
        return sorted({name for model in fitting for name in model.model_fields})
    section = Settings.model_fields.get(path[0])
    sections: dict[str, type[_Model]] = {
        "source": SourceSettings,
        "log": LogSettings,
        "capture": CaptureSettings,
        "snapshot": SnapshotSettings,
        "spark": SparkSettings,
        "limits": LimitSettings,
        "debezium": DebeziumSettings,
    }
    return list(sections[path[0]].model_fields) if section is not None and path[0] in sections else []
