"""The probe task: asks the executors of a cluster what their Python has, beside the application's other work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc.process.errors import CdcError
from sinks.contract.sink_spec import SinkSpec
from spark.session.executor_fitness import LIBRARIES, look, look_in_task, require_fit
from spark.session.failures import probe_failure

log = logging.getLogger(__name__)


def modules_of(specs: Iterable[SinkSpec]) -> tuple[str, ...]:
    """The modules that tasks for these stores import."""
    openers = {spec.opener.partition(":")[0] for spec in specs if spec.parallel}
    return (*LIBRARIES, "spark.queries.tasks", *sorted(openers))


class Probe:
    """Asks executors once they are there, and again when there are more. Nobody waits for it.

    It asks for no executor: with dynamic allocation those that a batch brought are asked.
    """

    def __init__(self, session: SparkSession, modules: tuple[str, ...]) -> None:
        self._session = session
        self._modules = modules
        self._asked = 0
        self._thread: threading.Thread | None = None
        self.failure: CdcError | None = None
        """Why executors cannot do the work."""

    def note(self, executors: int) -> None:
        """How many there are now."""
        if executors <= self._asked or (self._thread is not None and self._thread.is_alive()):
            self._asked = min(self._asked, executors)
            return
        self._asked = executors
        self._thread = threading.Thread(target=self._ask, name="probe", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        context = self._session.sparkContext
        count = max(1, context.defaultParallelism)
        try:
            numbers = context.parallelize(range(count), count)
            found = numbers.mapPartitions(partial(look_in_task, self._modules)).collect()
            for sentence in require_fit(look(self._modules), found):
                log.warning("executor_differs", extra={"reason": sentence})
        except CdcError as failure:
            self.failure = failure
        except AttributeError:
            # PySpark takes its JVM away under the call where the application ends.
            if context._jsc is not None:
                raise
        except (PySparkException, Py4JError, OSError) as failure:
            # Executors may have gone. A fault that is no Python's comes again in the first batch, which reports it.
            self.failure = probe_failure(str(failure))
