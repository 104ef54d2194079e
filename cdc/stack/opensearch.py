"""OpenSearch, one node, from the jars of its embedded runner."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import requests

from cdc.jvm.java import LIGHT, java_executable
from cdc.stack.part import LOOPBACK, Command, PartFiles

_HEAP = ("-Xms512m", "-Xmx512m")
# Without analysis-common: its language analysers need locales that the small runtime lacks.
_MODULES = (
    "org.opensearch.transport.Netty4ModulePlugin",
    "org.opensearch.index.mapper.MapperExtrasModulePlugin",
    "org.opensearch.index.reindex.ReindexModulePlugin",
    "org.opensearch.painless.PainlessModulePlugin",
)
_SETTINGS = """\
network.host: {host}
transport.port: {transport}
# A developer's disk is often nearly full, and that is no reason to make an index read-only.
cluster.routing.allocation.disk.threshold_enabled: false
"""


class OpenSearchPart:
    """One node without security, on loopback. ``standard`` and ``keyword`` analysis only. Implements
    :class:`cdc.stack.part.StackPart`."""

    def __init__(self, place: PartFiles, jars: Path) -> None:
        self.place = place
        self._jars = jars

    def prepare(self) -> Command:
        # The runner reads the folder of its first node, and writes a file of its own only where there is none.
        settings = self.place.folder / "node_1" / "config" / "opensearch.yml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        text = _SETTINGS.format(host=LOOPBACK, transport=self.place.ports["opensearch_transport"])
        settings.write_text(text, encoding="utf-8")
        runner = {
            "-basePath": str(self.place.folder),
            "-numOfNode": "1",
            "-clusterName": self._cluster,
            "-baseHttpPort": str(self._port - 1),  # the first node takes the next one
            "-moduleTypes": ",".join(_MODULES),
        }
        arguments = [part for pair in runner.items() for part in pair]
        java = [str(java_executable()), *_HEAP, *LIGHT, "-XX:-UsePerfData", "-cp", f"{self._jars}/*"]
        return Command(argv=[*java, "org.codelibs.opensearch.runner.OpenSearchRunner", *arguments, "-printOnFailure"])

    def ready(self) -> bool:
        try:
            health = requests.get(
                f"{self._url}/_cluster/health", params={"wait_for_status": "yellow", "timeout": "500ms"}, timeout=1
            )
            # Another node on this port would be somebody else's.
            return health.ok and health.json()["cluster_name"] == self._cluster
        except (requests.RequestException, ValueError, KeyError):
            return False

    def connection(self) -> dict[str, str]:
        return {"url": self._url}

    @property
    def _port(self) -> int:
        return self.place.ports["opensearch"]

    @property
    def _url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def _cluster(self) -> str:
        return "headrace-" + hashlib.sha256(os.fsencode(self.place.folder.resolve())).hexdigest()[:12]
