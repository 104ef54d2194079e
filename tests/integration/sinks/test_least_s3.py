"""The policies of ``compose/rights`` for a warehouse in S3 are enough, and they are no more than that."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.process.errors import CdcError
from cdc.record.progress import Watermark
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.sink_spec import SinkSpec, open_sink
from tests.contract.stores import live
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch
from tests.fresh import fresh_name
from tests.object_store import Call, Login, ObjectStore, object_store

RIGHTS = Path(__file__).parents[3] / "compose" / "rights"
BUCKET, FOREIGN = "shop-warehouse", "other/theirs"
ROW = {"id": 1, "status": "open", "note": None}
SHAPES = Shapes(ORDERS)


def policy(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RIGHTS / name).read_text(encoding="utf-8"))
    return found


def without(action: str) -> dict[str, Any]:
    """The sink's policy less one right."""
    less = copy.deepcopy(policy("s3-sink.json"))
    for one in less["Statement"]:
        rights = [one["Action"]] if isinstance(one["Action"], str) else one["Action"]
        one["Action"] = [right for right in rights if right != action]
    less["Statement"] = [one for one in less["Statement"] if one["Action"]]
    return less


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as made:
        made.make(BUCKET, [FOREIGN])
        yield made


def spec(store: ObjectStore, login: Login, path: str) -> SinkSpec:
    options = {f"storage.{name}": value for name, value in store.options(login).items()}
    secrets = {"storage.aws_secret_access_key": login.secret}
    return spec_for("delta", prefix="shop", options={"path": path, **options}, secrets=secrets)


def fill(place: SinkSpec, status: str, epoch: int = 1) -> None:
    with contextlib.closing(open_sink(place)) as opened:
        opened.sink.apply(batch(Topic().upsert({**ROW, "status": status}, at(1))), SHAPES)
        opened.commit(Watermark(epoch=epoch, lsn=9, offsets={ORDERS.topic: {0: 1}}))


@pytest.mark.slow
def test_the_policy_of_a_sink_is_enough_and_a_reader_reads(store: ObjectStore) -> None:
    """Filled, filled anew beside itself, and switched over: the first one's files go."""
    own = spec(store, store.user(fresh_name(), policy("s3-sink.json")), f"s3://{BUCKET}/shop/{fresh_name()}")
    fill(own, "old")
    fill(beside(own, 2), "rebuilt")
    with contextlib.closing(open_generations(own)) as generations:
        generations.switch(2, [ORDERS])
    reader = store.user(fresh_name(), policy("s3-reader.json"))
    read = spec(store, reader, own.text("path"))
    with contextlib.closing(open_sink(read)) as shown:
        assert [b"rebuilt" in row for row in live(shown, ORDERS).values()] == [True]
        with pytest.raises(CdcError):
            shown.commit(Watermark(epoch=1, lsn=10, offsets={ORDERS.topic: {0: 2}}))


@pytest.mark.slow
@pytest.mark.parametrize("action", ["s3:GetObject", "s3:PutObject", "s3:ListBucket"])
def test_a_sink_that_lacks_one_right_is_told_so(store: ObjectStore, action: str) -> None:
    own = spec(store, store.user(fresh_name(), without(action)), f"s3://{BUCKET}/shop/{fresh_name()}")
    with pytest.raises(CdcError) as refused:
        fill(own, "open")
        with contextlib.closing(open_sink(own)) as opened:
            live(opened, ORDERS)
    assert "storage_secrets" in (refused.value.hint or ""), refused.value


@pytest.mark.slow
@pytest.mark.parametrize("file", ["s3-sink.json", "s3-reader.json"])
def test_nobody_touches_what_is_not_the_pipelines(store: ObjectStore, file: str) -> None:
    login = store.user(fresh_name(), policy(file))
    theirs = {"Bucket": BUCKET, "Key": FOREIGN}
    calls: list[Call] = [
        ("s3", "get_object", theirs),
        ("s3", "put_object", {**theirs, "Body": "x"}),
        ("s3", "delete_object", theirs),
        ("s3", "delete_bucket", {"Bucket": BUCKET}),
        ("s3", "create_bucket", {"Bucket": fresh_name()}),
        ("s3", "list_buckets", {}),
        ("iam", "create_user", {"UserName": fresh_name()}),
    ]
    if file == "s3-reader.json":
        own = {"Bucket": BUCKET, "Key": "shop/x"}
        calls += [("s3", "put_object", {**own, "Body": "x"}), ("s3", "delete_object", own)]
    assert store.refused(login, *calls) == ["AccessDenied"] * len(calls)
    assert store.refused(login, ("s3", "list_objects_v2", {"Bucket": BUCKET})) == [None]


@pytest.mark.slow
def test_a_secret_that_is_wrong_opens_nothing(store: ObjectStore) -> None:
    """The server checks signatures: otherwise none of this would be proven."""
    login = store.user(fresh_name(), policy("s3-sink.json"))
    with pytest.raises(CdcError):
        fill(spec(store, Login(login.key, "wrong"), f"s3://{BUCKET}/shop/{fresh_name()}"), "open")
