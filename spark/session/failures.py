"""Errors of ours for what Spark raises when a query ends by itself, and the wait for a store that is away."""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)

from cdc.process.errors import CdcError, ConfigError, Exit, LogError, Retry, TopicError
from cdc.process.untrusted_text import hide, quoted
from spark.session.executor_fitness import another_python, missing_module, missing_python

_LOST = ("some data may have been missed", "OffsetOutOfRange", "KafkaDataConsumer.DATA_LOSS", "KAFKA_DATA_LOSS",
         "offset was changed from")  # fmt: skip
# A broker that restarts does not know its partitions for a while. The next start asks for the topics: a TopicError
# says then which one is really gone.
_AWAY = ("TimeoutException", "DisconnectException", "NetworkException", "BrokerNotAvailable", "NotLeader",
         "CoordinatorNotAvailable", "Timeout of", "KafkaException", "node assignment",
         "UnknownTopicOrPartition")  # fmt: skip
_REFUSED = ("SaslAuthenticationException", "SslAuthenticationException", "AuthorizationException")
_ENDED = ("Python worker exited", "Python worker failed to connect", "ExecutorLostFailure", "Executor heartbeat timed",
          "executor lost", "Remote RPC client disassociated", "Cannot run program", "SparkContext was shut down",
          "SparkContext has been shutdown", "worker lost", "Connection reset", "java.io.EOFException",
          "Python daemon", "OutOfMemoryError")  # fmt: skip
"""A process of Spark's was killed, or ran out of memory."""
_LACKS = re.compile(r"(?:ModuleNotFoundError: No module named|No module named) '([\w.]+)'")
_PYTHONS = re.compile(r"has different version: (\d{1,3}[.]\d{1,3}) than that in driver: (\d{1,3}[.]\d{1,3})")
_NO_PYTHON = re.compile(r'Cannot run program "([^"\n]{1,300})"')
_ABSENT = re.compile(r"error[:=] ?(?:2|13)\b")
"""There is no such file, or it may not be started."""
_NO_SOURCE = ("Failed to find data source: kafka", "Failed to find the data source: kafka")
_NAMED = re.compile(r"(?<![\w.])(?:[a-z_]\w*\.)+([A-Z]\w*(?:Exception|Error)): ([^\n]+)")
_LONGEST = 300


class QueryFailed(CdcError):
    """A query ended for a reason of Spark's. Tried again a few times."""

    exit = Exit.BUG
    retry = Retry.NOW


class SparkLost(CdcError):
    """A part that Spark runs on ended: its JVM, a Python worker, an executor. Started again, all goes on."""

    exit = Exit.UNAVAILABLE
    retry = Retry.LATER


def unexpected(query: str, failure: BaseException) -> QueryFailed:
    """The error for an exception that should not be, without its own words: they may hold a row's values."""
    where = "".join(f" at {f.filename}:{f.lineno}" for f in traceback.extract_tb(failure.__traceback__)[-1:])
    return QueryFailed(f"the query {query} failed: {type(failure).__name__}{where}", hint="this is a fault of Headrace")


def read_failure(query: str, text: str, log: str) -> CdcError:
    """The error for a query's exception text. TopicError where records are gone, LogError where Kafka is away,
    ConfigError where Spark or its executors lack a part."""
    said = cause(text)
    if lacking := _lacking(text):
        return lacking
    if any(word in text for word in _LOST):
        return TopicError(
            f"records are gone from the topics that have not been read yet, says the query {query}: {said}",
            hint="a topic was deleted, made anew or cut; cdc check says which",
        )
    if any(word in text for word in _REFUSED):
        return LogError(
            f"Kafka refused the query {query}: {said}", hint="check [log.client] and its secrets", retry=Retry.NEVER
        )
    if any(word in text for word in _AWAY):
        return LogError(f"Kafka does not answer the query {query}: {said}", hint="check that the brokers run")
    if any(word in text for word in _ENDED):
        return SparkLost(
            f"a process that works for the query {query} ended: {said}",
            hint=f"often the kernel ends it for lack of memory; Spark's own words are in {log}",
        )
    return QueryFailed(f"the query {query} failed: {said}", hint=f"Spark's own words are in {log}")


def probe_failure(text: str) -> ConfigError | None:
    """Why executors cannot work for this driver, by the text of the exception that ended the probe task. None for what
    may pass. A query asks it not: an executor that is about to end may not find its own folder any more."""
    if (found := _NO_PYTHON.search(text)) and _ABSENT.search(text, found.end()):
        return missing_python(quoted(found[1]))
    told = read_failure("probe", text, "spark.log")
    return told if isinstance(told, ConfigError) else None


def _lacking(text: str) -> CdcError | None:
    """The error for a part that the cluster, or Spark itself, does not have."""
    if pythons := _PYTHONS.search(text):
        return another_python(pythons[1], pythons[2])
    if module := _LACKS.search(text):
        return missing_module(module[1])
    if any(word in text for word in _NO_SOURCE):
        return ConfigError(
            "Spark has no Kafka source: a jar is missing",
            hint='cdc sink --jars names them: spark-submit --jars "$(cdc sink --jars)"',
        )
    return None


def cause(text: str) -> str:
    """The innermost exception's message, on one line. ``text``: of an exception of the JVM's."""
    found = _NAMED.findall(text)
    said = f"{found[-1][0]}: {found[-1][1]}" if found else text.strip().split("\n", 1)[0]
    return hide(said.strip())[:_LONGEST] or "without a word"


T = TypeVar("T")
TIMEOUT_S = 3600.0
"""How long one call into a store is tried. Its query is started anew then, and goes on waiting."""
_LONGEST_WAIT_S = 15.0
GRACE_S = 20.0
"""The time that the batch in hand may take once the application is to stop."""


class Halted(CdcError):
    """A stop was asked for while waiting: the batch in hand is given up and comes again."""

    exit = Exit.OK


def persist(
    action: Callable[[], T],
    *,
    halt: threading.Event,
    timeout_s: float = TIMEOUT_S,
    away: Callable[[CdcError], None] = lambda error: None,
) -> T:
    """The action's result, trying again while it fails with an error that passes with time.

    ``away`` hears of each failure before the wait. Halted when ``halt`` is set meanwhile. The last error after
    ``timeout_s``. Any other error at once.
    """

    def before_sleep(state: RetryCallState) -> None:
        failure = state.outcome.exception() if state.outcome is not None else None
        if isinstance(failure, CdcError):
            away(failure)

    retrying = Retrying(
        retry=retry_if_exception(mendable),
        wait=wait_random_exponential(multiplier=0.2, max=_LONGEST_WAIT_S),
        stop=stop_after_delay(timeout_s) | stop_when_event_set(halt),
        sleep=sleep_using_event(halt),
        before_sleep=before_sleep,
        reraise=True,
    )
    try:
        return retrying(action)
    except CdcError as error:
        if mendable(error) and halt.is_set():
            raise Halted("told to stop while the store was away") from error
        raise


def mendable(error: BaseException) -> bool:
    """Whether waiting can help."""
    return isinstance(error, CdcError) and error.retry is Retry.LATER
