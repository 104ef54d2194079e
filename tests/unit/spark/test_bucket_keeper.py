"""A view's runner over Delta tables and random histories, with kills between every two commits and states copied back.

The histories and oracles are those of the runner with a state on one machine. The tasks run in this process.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.errors import ConfigError
from cdc.position import Position
from cdc.views.fences import Fence
from cdc.views.memory_views import MemoryViewTopic
from cdc.views.state_faults import StateAway
from cdc.views.view_records import ViewRecord
from spark.views.bucket_files import PENDING, BucketFiles, values
from spark.views.delta_tables import DeltaTables, stored_manifest
from tests.examples import examples
from tests.unit.cdc.views import ahead_histories
from tests.unit.cdc.views.damaged_stores import DamagedStore
from tests.unit.cdc.views.oracles import DOCUMENTS, documents_of
from tests.unit.cdc.views.view_histories import History, shown, swept, whole_at
from tests.unit.spark.bucket_histories import BucketRunner, interfere


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.slow
def test_v1_v9_h158_h185_claims_over_delta_are_true(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    chance = random.Random(seed)
    history = History(chance)
    runner = BucketRunner(DOCUMENTS, history, tmp_path_factory.mktemp("view"))
    for _ in range(8):
        for _ in range(chance.randint(0, 3)):
            history.transaction()
        if chance.random() < 0.1:
            history.truncate()
        if chance.random() < 0.2:
            history.foreign()
        if chance.random() < 0.7:
            history.progress()
        runner.kill_chance = 0.1
        for _ in range(chance.randint(0, 5)):
            runner.turn()
            if runner.level:
                claim = runner.topic.claims[-1]
                assert shown(runner.topic) == documents_of(history.at(claim.lsn))
        interfere(runner, chance)
        history.clock.advance(chance.choice([1, 20, 70]))
        if chance.random() < 0.5:
            history.compact()
        if chance.random() < 0.4 and history.input.newest is not None:
            claim = runner.until_level()
            assert claim == Fence(1, history.input.newest.lsn)
            assert shown(runner.topic) == documents_of(history.at(claim.lsn))


@pytest.mark.parametrize("buckets", [1, 2])
@settings(max_examples=examples(3), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.slow
def test_h258_small_batches_leave_files_of_one_size(
    buckets: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    history = History(chance)
    runner = BucketRunner(DOCUMENTS, history, tmp_path_factory.mktemp("view"), buckets=buckets)
    for number in (1, 2, 3):
        history.write("orders", number, {"id": number, "customer_id": 1})
    history.write("customers", 1, {"id": 1, "name": 7})
    for _ in range(25):
        line = chance.randint(1, 9)
        order, qty = chance.randint(1, 3), chance.randint(1, 9)
        history.write("lines", line, {"id": line, "order_id": order, "qty": qty})
        history.progress_now()
        claim = runner.until_level()
        assert shown(runner.topic) == documents_of(history.at(claim.lsn))


@pytest.mark.parametrize("kind", ["read again", "put aside", "set aside"])
@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.slow
def test_v25_over_delta_nothing_newer_than_its_fence_shows(
    kind: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = ahead_histories.history(seed, puts_aside=kind == "put aside", sets_aside=kind == "set aside")
    chance = log.chance
    folder = tmp_path_factory.mktemp("view")
    runner = BucketRunner(ahead_histories.DOCUMENTS, log, folder, shapes=ahead_histories.SHAPES)
    for _ in range(8):
        for _ in range(chance.randint(0, 3)):
            log.transaction()
        log.stream(chance.randint(0, 3))
        _disturb(log, chance)
        if chance.random() < 0.7:
            log.progress()
        runner.kill_chance = 0.1
        for _ in range(chance.randint(0, 5)):
            runner.turn()
            fence = whole_at(runner.topic)
            if fence is not None:
                assert shown(runner.topic) == ahead_histories.documents_of(log.at(fence.lsn)), fence
        interfere(runner, chance)
        log.clock.advance(chance.choice([1, 20, 70]))
        if chance.random() < 0.5:
            log.compact()
    log.mend()
    claim = runner.until_level()
    assert log.input.newest is not None
    assert claim == Fence(1, log.input.newest.lsn)
    assert shown(runner.topic) == ahead_histories.documents_of(log.at(claim.lsn))


def _ordered(history: History, number: int, customer: int | None = None) -> None:
    """An order, and nothing behind it."""
    history.write("orders", number, {"id": number, "customer_id": customer})
    history.progress_now()


def test_h239_another_number_of_buckets_is_refused(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = BucketRunner(DOCUMENTS, history, tmp_path)
    _ordered(history, 1)
    runner.until_level()
    runner.end()
    runner.buckets = 4
    with pytest.raises(ConfigError, match=r"was made with 3 buckets, and .* says 4") as refused:
        runner.start()
    assert "put ?buckets=3 back" in refused.value.hint
    runner.buckets = 3
    _ordered(history, 2)
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))


def test_h240_tables_without_a_manifest_are_not_believed(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = BucketRunner(DOCUMENTS, history, tmp_path)
    for customer in (1, 2):
        history.write("customers", customer, {"id": customer, "name": customer})
        _ordered(history, 1, customer)
        runner.until_level()
    runner.end()
    shutil.rmtree(runner.root / "manifest")
    _ordered(history, 1, 1)
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))


def test_h241_a_view_that_is_made_again_is_published_anew(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = BucketRunner(DOCUMENTS, history, tmp_path)
    _ordered(history, 1)
    runner.until_level()
    runner.end()
    runner.topic = MemoryViewTopic(topic_id="second")
    _ordered(history, 2)
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))
    assert runner.keeper is not None
    assert runner.keeper.reached.topic_id == "second"


def test_h258_a_state_of_an_older_format_is_built_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = History(random.Random(1))
    runner = BucketRunner(DOCUMENTS, history, tmp_path)
    for number in (1, 2):
        _ordered(history, number)
        runner.until_level()
    runner.end()
    tables, manifest = DeltaTables(runner.root, [], history.clock), stored_manifest(runner.root)[0]
    # As the faulty join left it: a row that was deleted is live, and its document published.
    tables.note(orjson.dumps(orjson.loads(manifest.to_json()) | {"format": 1}).decode())
    runner.topic.records[0] = [*runner.topic.records.get(0, []), _document(3)]
    assert not stored_manifest(runner.root)[0].sound
    _ordered(history, 1, 1)
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))
    assert stored_manifest(runner.root)[0].sound
    assert "view_state_of_older_format" in caplog.messages
    caplog.clear()
    runner.end()
    _ordered(history, 2, 1)
    runner.until_level()
    assert "view_state_of_older_format" not in caplog.messages, "once"


def _document(number: int) -> ViewRecord:
    """A document of no order, as the history's view publishes one."""
    pos = Position(1, 8, 3).text().encode()
    value = orjson.dumps({"after": {"id": number, "name": None, "lines": None}})
    return ViewRecord("t.view.v.1", 0, orjson.dumps({"id": number}), value, [("pos", pos), ("op", b"c"), ("ver", b"1")])


class _Losing(BucketRunner):
    """Staged documents vanish before the driver reads them."""

    def _maybe(self) -> None:
        for file in (self.root / "documents").glob("*.parquet"):
            file.unlink()


def test_h259_staged_documents_that_vanish_are_a_state_away(tmp_path: Path) -> None:
    history = History(random.Random(1))
    losing = _Losing(DOCUMENTS, history, tmp_path)
    _ordered(history, 1)
    with pytest.raises(StateAway, match="cannot be read or written"):
        losing.until_level()
    assert losing.topic.records == {}
    runner = BucketRunner(DOCUMENTS, history, tmp_path, losing.topic)
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))


def _share(number: int, value: int) -> dict[bytes, object]:
    return {b'{"id":%d}' % number: {"id": number, "share": value}}


def _lost(history: History, runner: BucketRunner, kept: Path) -> None:
    """The state is lost, and what it knew of is published anew: the first document cannot be computed now."""
    runner.end()
    shutil.copytree(runner.root, kept)
    shutil.rmtree(runner.root)
    _ordered(history, 1, 0)
    _ordered(history, 2, 6)
    for _ in range(5):
        runner.turn()


def test_h244_what_a_newer_state_swept_is_written_again(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = BucketRunner("select o.id, 12 / o.customer_id as share from orders o", history, tmp_path)
    _ordered(history, 1, 3)
    _ordered(history, 3, 0)
    for _ in range(5):
        runner.turn()
    assert runner.topic.claims == [], "nothing was ever claimed, so the mark takes what is parked"
    _lost(history, runner, tmp_path / "kept")
    assert shown(runner.topic) == _share(2, 2), "one is parked, and swept"
    runner.end()
    shutil.rmtree(runner.root)
    shutil.copytree(tmp_path / "kept", runner.root)
    _ordered(history, 1, 3)
    _ordered(history, 3, 12)
    runner.until_level()
    assert shown(runner.topic) == _share(1, 4) | _share(2, 2) | _share(3, 1)


def test_h510_a_lost_states_sweep_keeps_parked_documents(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = BucketRunner("select o.id, 12 / o.customer_id as share from orders o", history, tmp_path)
    _ordered(history, 1, 3)
    claim = runner.until_level()
    _lost(history, runner, tmp_path / "kept")
    assert runner.topic.claims[-1] == claim
    assert shown(runner.topic) == _share(1, 4) | _share(2, 2), "the former one, as of the claim"
    assert swept(runner.topic) == 1
    runner.end()
    _ordered(history, 1, 4)
    assert runner.until_level() > claim
    assert shown(runner.topic) == _share(1, 3) | _share(2, 2)
    assert swept(runner.topic) == 2


def test_h245_keys_that_wait_for_long_lie_in_few_files(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = BucketRunner(DOCUMENTS, history, tmp_path, buckets=1)
    _ordered(history, 1)
    runner.until_level()
    runner.end()
    runner.topic.claims.append(Fence(1, 1 << 40))
    for number in range(2, 25):
        _ordered(history, number)
        runner.turn()
    manifest, files = stored_manifest(runner.root)
    pending = files[PENDING.table][0]
    assert len(pending) <= 9
    names = values(BucketFiles(runner.root).newest(PENDING, pending), "key")
    assert sorted(names) == sorted(f"[{number}]" for number in range(2, 25))
    assert manifest.waiting == 23


def _disturb(log: ahead_histories.AheadHistory, chance: random.Random) -> None:
    """Sometimes: a table is read again, or some of its keys, or it is set aside and followed again."""
    what = chance.randrange(6)
    if what == 0:
        log.read(chance.choice(("orders", "lines", "customers")))
    elif what == 1:
        log.read(chance.choice(("orders", "lines", "customers")), chance.sample(range(1, 7), 2))
    elif what == 2:
        log.set_aside()
    elif what == 3:
        log.follow_again()


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.slow
def test_h380_a_damaged_store_is_mended_over_delta(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    chance = random.Random(seed)
    history, store = History(chance), DamagedStore()
    runner = BucketRunner(DOCUMENTS, history, tmp_path_factory.mktemp("view"))
    for _ in range(5):
        for _ in range(chance.randint(0, 3)):
            history.transaction()
        history.progress()
        runner.until_level()
        store.follow(runner.topic)
        wish = history.ask("t.view.v.1", store.damage(chance, b'{"id":99}'))
        history.lsn += 8  # The fence of who asks.
        history.progress()
        runner.kill_chance = 0.2
        for _ in range(chance.randint(0, 6)):
            runner.turn()
        if chance.random() < 0.3:
            interfere(runner, chance)
        claim = runner.until_level()
        store.follow(runner.topic)
        assert store.shown() == documents_of(history.at(claim.lsn))
        assert [one.id for one in runner.topic.answers[-1:]] == [wish.id]
        history.clock.advance(chance.choice([1, 20, 70]))


def test_h380_a_document_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = BucketRunner("select o.id, 12 / o.customer_id as share from orders o", history, tmp_path)
    _ordered(history, 1, 3)
    runner.until_level()
    _ordered(history, 1, 0)
    history.ask("t.view.v.1", [b'{"id":1}'])
    for _ in range(20):
        runner.turn()
    (answer,) = runner.topic.answers
    assert list(answer.parked) == ['{"id":1}']
    assert "division by zero" in answer.parked['{"id":1}']
