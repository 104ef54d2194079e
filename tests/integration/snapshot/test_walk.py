"""The way of a row of the snapshot is the one that ARCHITECTURE.md tells."""

from __future__ import annotations

import threading
from contextlib import closing
from multiprocessing import Pipe

import pytest

from snapshot.first.slot_creation import open_cut
from snapshot.first.workers import ChunkRead, ChunkWorker, NoMoreTasks, WorkerReady
from tests.integration.snapshot.pipeline import Pipeline
from tests.walks import Calls, Walk, named

VALUE = "a value that is followed"
ANSWER_S = 60.0


@pytest.mark.slow
def test_a_row_of_the_snapshot_passes_the_files_of_the_page(pipeline: Pipeline) -> None:
    pipeline.execute("create table t (id int primary key, v text)", f"insert into t values (1, '{VALUE}')")
    pipeline.prepare()
    edges = pipeline.edges()
    walk = Walk(VALUE, {"<row>": "connectors/postgres/encoding/compiled.py"})
    ours, theirs = Pipe()

    def work() -> None:
        # A worker is a process of its own, whose calls are not seen here.
        with ChunkWorker(edges, theirs, exact=False) as worker:
            worker.work()

    def await_answer(kind: type) -> None:
        answer: object = None
        while not isinstance(answer, kind):
            assert ours.poll(ANSWER_S)
            answer = ours.recv()

    with (
        closing(open_cut(edges.source)) as holder,
        closing(edges.source.session("test")) as session,
        walk.watched(),
    ):
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        await_answer(WorkerReady)
        ours.send(pipeline.task(session, holder.cut.snapshot))
        await_answer(ChunkRead)
        ours.send(NoMoreTasks())
        await_answer(ChunkRead)
        worker.join()
    assert walk.files == named("From a chunk to its records")
    assert len(walk.files) == 6


@pytest.mark.slow
def test_tables_become_chunks_by_the_files_of_the_page(pipeline: Pipeline) -> None:
    pipeline.execute("create table t (id int primary key, v text)", "insert into t values (1, 'first')")
    pipeline.prepare()
    calls = Calls("snapshot/")
    with calls.watched():
        pipeline.run(workers=1)
    assert calls.files == named("From tables to chunks")
    assert len(calls.files) == 9
