"""Asks a search server who it is, for ``cdc check``."""

from __future__ import annotations

import opensearchpy

from cdc.checks.facts import StoreFacts
from cdc.errors import ConfigError, SinkError
from cdc.foreign import quoted
from sinks.registry import SinkSpec
from sinks.store_facts import ELSEWHERE, TIMEOUT_S, login, place, stranger, unreached

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
