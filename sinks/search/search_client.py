"""OpenSearch or Elasticsearch over one client: JSON in and out as text, so that numbers stay as they were written."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import opensearchpy
import orjson
from opensearchpy import exceptions

from cdc.process.clock import Clock
from cdc.process.errors import ConfigError, Exit, Retry, SinkError
from cdc.process.untrusted_text import quoted
from cdc.record.server_facts import StoreFacts
from sinks.contract.missing_values import loads_exact
from sinks.contract.port import PlaceMissing, StoreAway
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_connection import (
    ELSEWHERE,
    TIMEOUT_S,
    StoreRetry,
    brief,
    login,
    login_refused,
    place,
    stranger,
    unreachable,
    unreached,
)

log = logging.getLogger("headrace.sinks")
IN_FLIGHT = 3
_TIMES = 2
_TIMEOUT_S = 120.0
_PART = 4
"""A part of a bulk body that was not answered is waited for by so much less."""
_SCROLL = "5m"
_BUSY = frozenset((429, 502, 503, 504))
_WHOLE = {"allow_partial_search_results": "false"}
_NOTHING = b'{"size":0,"query":{"match_none":{}}}'
_UNAVAILABLE = 503
"""With a block: of the whole cluster, which has no leader or is starting."""
_REFUSED = frozenset((400, 413))
_DENIED = frozenset(("security_exception", "authorization_exception", "authentication_exception"))
BLOCK = "cluster_block_exception"
_MADE_ANEW = "the sink makes a missing index anew and fills it"
_BLOCKED = "look at its disk, and at index.blocks.*"


class _SearchBusy(Exception):
    """The server answers that it cannot, for now."""


class _Verbatim:
    """The client's serializer: text passes as it is."""

    mimetype = "application/json"

    def loads(self, text: str) -> str:
        return text

    def dumps(self, data: Any) -> Any:
        return data


class SearchClient:
    """Requests to one cluster. :meth:`bulk` may be called from several threads at once, the rest from one."""

    def __init__(
        self,
        url: str,
        user: str | None,
        password: str | None,
        ca_certs: str | None,
        clock: Clock,
        *,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._timeout_s = timeout_s
        self.store = f"the search server at {place(url, URLS)}"
        passing = (exceptions.ConnectionError, _SearchBusy)
        self._retry = StoreRetry(store=self.store, passing=passing, explain=self._explained, clock=clock)
        self._client: Any = opensearchpy.OpenSearch(
            hosts=[url],
            http_auth=(user, password or "") if user else None,
            ca_certs=ca_certs,
            timeout=timeout_s,
            max_retries=0,
            retry_on_timeout=False,
            maxsize=IN_FLIGHT,
            serializer=_Verbatim(),
        )
        info = self.call("GET", "/")
        self.is_opensearch = info.get("version", {}).get("distribution") == "opensearch"

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        absent: Any = None,
    ) -> Any:
        """One request and its answer, read exactly. ``absent``: returned for 404, unless None.

        StoreAway when the server stays away. :class:`IndexGone`, :class:`IndexBlocked` and :class:`Conflict` for what
        it does not do with an index, however often it is asked.
        """
        text = self._retry.call(
            lambda: self._perform(method, path, None if body is None else orjson.dumps(body), params, absent)
        )
        return absent if text is None else loads_exact(text.encode("utf-8", "surrogatepass")) if text else {}

    def bulk(self, body: bytes, *, part: bool = False, more: str = "") -> list[dict[str, Any]]:
        """A bulk body's items in order: ``status`` and, where it failed, ``error``. Conflict when it takes none.
        ``more``: names of other members to be returned, each behind a comma.

        BulkUnanswered when no answer has come twice within two minutes. ``part``: once within half a minute, of a part
        of such a body.
        """
        params = {
            "filter_path": f"errors,items.*.status,items.*.error.type,items.*.error.reason{more}",
            "require_alias": "true",
            "request_timeout": self._timeout_s / _PART if part else self._timeout_s,
        }
        times = 0

        def ask() -> Any:
            nonlocal times
            try:
                return self._perform("POST", "/_bulk", body, dict(params), None)
            except exceptions.ConnectionTimeout:
                times += 1
                log.warning("bulk_unanswered", extra={"store": self.store, "bytes": len(body), "times": times})
                if part or times == _TIMES:
                    raise BulkUnanswered(f"{self.store} does not answer a bulk request") from None
                raise

        return [item for entry in orjson.loads(self._retry.call(ask))["items"] for item in entry.values()]

    def takes(self, lines: bytes) -> bool:
        """Whether the server answers a write into the index of an item's ``lines``. Nothing is written."""
        (action,) = orjson.loads(lines.partition(b"\n")[0]).values()
        nowhere = {"update": {"_index": action["_index"], "_id": "%nowhere"}}
        try:
            return bool(self.bulk(orjson.dumps(nowhere) + b'\n{"doc":{}}\n', part=True))
        except BulkUnanswered:
            return False

    def documents(self, path: str, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Documents of an index by id, each with ``found``, in order.

        A shard that is not there answers for each of its documents that it is not available, within an answer of 200:
        such a one is not absent. It is asked for again, as a server that is busy. Raises as :meth:`call`,
        and SinkError where the user may not read the index.
        """
        body = orjson.dumps({"ids": list(ids)})

        def ask() -> list[dict[str, Any]]:
            text = self._perform("POST", f"{path}/_mget", body, None, None)
            found: list[dict[str, Any]] = loads_exact(text.encode("utf-8", "surrogatepass"))["docs"]
            for kind in {str(one["error"].get("type")) for one in found if one.get("error")}:
                if kind == "index_not_found_exception":
                    raise IndexGone(f"{self.store} has no such index", hint=_MADE_ANEW)
                if kind in _DENIED:
                    # Within an answer of 200: waiting gives no right.
                    raise login_refused(self.store, kind, retry=Retry.NEVER)
                if kind == "illegal_argument_exception":
                    continue  # no document can have such an id
                if kind in (BLOCK, "index_closed_exception"):
                    raise IndexBlocked(f"{self.store} answers {kind}", hint=_BLOCKED)
                raise _SearchBusy(kind)
            return found

        return self._retry.call(ask)

    def refresh(self, path: str) -> None:
        """Show what was written to some indexes. StoreAway where that goes on failing, and as :meth:`call`.

        Shards that did not do so stand within an answer of 200, and what was written to them does not show. They are
        asked again.
        """

        def ask() -> None:
            shards = orjson.loads(self._perform("POST", f"{path}/_refresh", None, None, None))["_shards"]
            if shards["failed"]:
                raise _SearchBusy("a shard cannot show what was written")
            if shards["successful"] < shards["total"]:
                # Neither a replica without a node is among the failed ones nor a shard that is not there at all. A
                # search that wants them all tells one from the other. A shard that comes back shows all it has.
                self._perform("POST", f"{path}/_search", _NOTHING, _WHOLE, None)

        self._retry.call(ask)

    def scroll(self, path: str, body: Mapping[str, Any], size: int) -> Iterator[list[dict[str, Any]]]:
        """Every hit of a search, ``size`` at a time, as of its beginning. Nothing where the index is absent.

        No part of them: StoreAway where a shard does not answer.
        """
        query = {**body, "size": size, "sort": ["_doc"]}
        params = {"scroll": _SCROLL, **_WHOLE}
        page = self.call("POST", f"{path}/_search", query, params=params, absent={})
        if not page:
            return
        try:
            while page["hits"]["hits"]:
                yield page["hits"]["hits"]
                page = self.call("POST", "/_search/scroll", {"scroll": _SCROLL, "scroll_id": page["_scroll_id"]})
                if page.get("_shards", {}).get("failed"):
                    # The option counts for the first page alone.
                    raise unreachable(self.store, "a shard does not answer")
        finally:
            with contextlib.suppress(SinkError):
                self.call("DELETE", "/_search/scroll", {"scroll_id": page["_scroll_id"]}, absent={})

    def close(self) -> None:
        """End all connections. Raises nothing."""
        with contextlib.suppress(Exception):
            self._client.close()

    def _perform(
        self, method: str, path: str, body: bytes | None, params: Mapping[str, Any] | None, absent: Any
    ) -> Any:
        ndjson = {"content-type": "application/x-ndjson"} if path == "/_bulk" else None
        try:
            return self._client.transport.perform_request(method, path, params=params, body=body, headers=ndjson)
        except exceptions.NotFoundError as error:
            if absent is None:
                raise IndexGone(self._described(error), hint=_MADE_ANEW) from None
            return None
        except exceptions.ConnectionError:
            raise
        except exceptions.TransportError as error:
            if error.status_code != _UNAVAILABLE and _error_type(error) == BLOCK:
                raise IndexBlocked(self._described(error), hint=_BLOCKED) from None
            if error.status_code in _BUSY:
                raise _SearchBusy(f"HTTP {error.status_code}") from None
            if error.status_code in _REFUSED:
                raise Conflict(self._described(error), kind=_error_type(error), reason=_reason(error)) from None
            raise

    def _described(self, error: exceptions.TransportError) -> str:
        """The server's answer, briefly: its error's type, never a document's content."""
        return f"{self.store} answers HTTP {error.status_code}: {_error_type(error)}"

    def _explained(self, error: Exception) -> SinkError:
        if isinstance(error, exceptions.AuthenticationException | exceptions.AuthorizationException):
            known = isinstance(error, exceptions.AuthorizationException)
            retry = Retry.NEVER if known else Retry.SECRET
            return login_refused(self.store, f"HTTP {error.status_code}", retry=retry)
        if isinstance(error, exceptions.SSLError):
            hint = "set ca_certs to its authority"
            return StoreAway(f"the certificate of {self.store} is not trusted", hint=hint)
        if isinstance(error, exceptions.ConnectionError):
            return unreachable(self.store, brief(str(error.info or error.error)))
        if isinstance(error, exceptions.TransportError):
            return StoreAway(self._described(error))
        if isinstance(error, _SearchBusy):
            return unreachable(self.store, str(error))
        return StoreAway(f"{self.store} cannot be used: {type(error).__name__}")


class Conflict(SinkError):
    """The request does not fit the index: a mapping would change a field's type, or an item of a bulk body cannot be
    read. ``kind``: the server's name for that. ``reason``: its words, which may quote a body's values."""

    exit = Exit.CONFIG
    retry = Retry.NEVER

    def __init__(self, message: str, *, hint: str = "", kind: str = "", reason: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.reason = reason


class BulkUnanswered(StoreAway):
    """The server does not answer a bulk body, because of one of its documents or because it is away."""


class IndexBlocked(StoreAway):
    """An index that may not be written: by its settings, or because a disk is full."""


class IndexGone(PlaceMissing):
    """An index that is not there."""


def _reason(error: exceptions.TransportError) -> str:
    """The server's words, which the client has read already, or left as text."""
    info: Any = error.info
    try:
        said = (orjson.loads(info) if isinstance(info, str) else info)["error"]
        return brief(str(said["reason"]))
    except (ValueError, KeyError, TypeError):
        return ""


def _error_type(error: exceptions.TransportError) -> str:
    text = str(error.error)
    try:
        document = orjson.loads(text)
        return str(document["error"]["type"])
    except (ValueError, KeyError, TypeError):
        return brief(text)


URLS = ("https://host:9200", "http://host:9200")
_NO_HTTP = ("RemoteDisconnected", "BadStatusLine", "Connection reset by peer", "IncompleteRead")


def probe_search(spec: SinkSpec) -> StoreFacts:
    """An OpenSearch or Elasticsearch: its version and its health.

    Raises ConfigError for a login, a certificate or a protocol that does not fit, SinkError when no server answers.
    """
    url, user, password = spec.text("url"), spec.optional("user"), spec.secrets.get("password")
    where = place(url, URLS)
    client = opensearchpy.OpenSearch(
        hosts=[url],
        http_auth=(user, password or "") if user else None,
        ca_certs=spec.optional("ca_certs"),
        timeout=TIMEOUT_S,
        max_retries=0,
    )
    try:
        version = client.info()["version"]
        health = client.cluster.health()["status"]
    except (opensearchpy.AuthenticationException, opensearchpy.AuthorizationException) as error:
        raise login(where, f"HTTP {error.status_code}") from None
    except opensearchpy.SSLError as error:
        if "WRONG_VERSION_NUMBER" in str(error):
            raise stranger("TLS", where, 'write url = "http://...", or check the port') from None
        raise ConfigError(
            f"the certificate of {where} is not trusted: {quoted(str(error))}", hint="set ca_certs to its authority"
        ) from None
    except opensearchpy.ConnectionError as error:
        if any(word in str(error) for word in _NO_HTTP):
            raise stranger("HTTP", where) from None
        raise unreached("OpenSearch", where, quoted(str(error.info or error.error)), "url") from None
    except opensearchpy.OpenSearchException as error:
        raise SinkError(f"OpenSearch at {where} answers with an error: {quoted(str(error))}", hint=ELSEWHERE) from None
    finally:
        client.close()
    product = "OpenSearch" if version.get("distribution") == "opensearch" else "Elasticsearch"
    return StoreFacts(product=product, version=str(version["number"]), notes={"health": str(health)})
