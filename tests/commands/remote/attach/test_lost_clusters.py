"""Tiers of lost clusters in both layouts: the entries are those that were there, and readers find the same records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.remote.attach.clusters import RLMM, Attached, Image, told
from tests.conftest import CORPORA, Ran, run_klog, writable_copy
from tests.oracles.plain.decode import Batch, scan
from tests.oracles.plain.encode import Record, batch
from tests.support.power import tree
from tests.support.s3_server import s3_server, upload, use
from tests.support.tiers import Situation, situation

Klog = Callable[..., Ran]
pytestmark = pytest.mark.corpora
FRESH = "tiered/lost-cluster/fresh.tar.xz"
KEYS = ("--remote-keys", f"key1={CORPORA / 'tiered/aiven-encrypted/private.pem'}")
FACTS = {
    "segment_id": "segment_id",
    "start_offset": "start_offset",
    "end_offset": "end_offset",
    "bytes": "size",
    "max_timestamp": "max_timestamp",
    "epochs": "epochs",
    "txn_index_empty": "txn_index_empty",
    "custom_metadata": "custom",
}
"""The facts of an entry as `klog remote ls` has them, and as the truth has them."""


def attached_to(image: Image, found: Situation, folder: Path) -> Attached:
    return Attached(folder, image(FRESH) / "broker-1/data", found.tier)


def segments(klog: Klog, place: Attached) -> dict[str, list[dict[str, Any]]]:
    """The entries of each partition that is attached, by the metadata."""
    shown = json.loads(klog("remote", "ls", place.data, "-o", "json", "--segments").stdout)
    return {f"{one['topic']}-{one['partition']}": one["segment_list"] for one in shown["partitions"]}


def entries(found: Situation, partition: str, end: int) -> list[dict[str, Any]]:
    """The finished entries of the lost cluster that its consumers were served from, up to an offset."""
    return [
        one
        for one in found.truth["segments"]["before"]
        if f"{one['topic']}-{one['partition']}" == partition
        and one["state"] == "COPY_SEGMENT_FINISHED"
        and one["end_offset"] < end
    ]


@pytest.mark.parametrize("name", ["lost-cluster", "lost-cluster-aiven", "aiven-plain", "aiven-encrypted"])
@pytest.mark.parametrize("knows", ["the tier alone", "log dirs"])
def test_entries_are_those_of_the_lost_cluster(klog: Klog, image: Image, tmp_path: Path, name: str, knows: str) -> None:
    """Offsets, sizes, epochs, times and transactions; from its log dirs also the storage manager's own data."""
    found = situation(image, name)
    place = attached_to(image, found, tmp_path / "new")
    more = ("--from", found.data[0]) if knows == "log dirs" else ()
    attached = place.attach(*more, *KEYS)
    listed = segments(klog, place)
    assert attached.keys() == {one for one in found.clients if found.clients[one]["offsets"]["latest_tiered"] >= 0}
    for partition, one in attached.items():
        assert one["remote_end_offset"] == found.clients[partition]["offsets"]["latest_tiered"]
        wanted = {each["segment_id"]: each for each in entries(found, partition, one["remote_end_offset"] + 1)}
        assert {each["segment_id"] for each in listed[partition]} <= wanted.keys()
        assert len(listed[partition]) == one["segments"]
        for each in listed[partition]:
            truth = wanted[each["segment_id"]]
            facts = {ours: truth[theirs] for ours, theirs in FACTS.items() if more or theirs != "custom"}
            facts["epochs"] = [[int(epoch), start] for epoch, start in dict(truth["epochs"]).items()]
            assert {ours: each[ours] for ours in facts} == facts, partition


@pytest.mark.parametrize("name", ["lost-cluster", "lost-cluster-aiven"])
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_both_tiers_read_as_consumers_read_them(
    klog: Klog, image: Image, tmp_path: Path, name: str, level: str
) -> None:
    """Over the attached disk; the transaction whose marker was never copied is aborted, as it was."""
    found = situation(image, name)
    place = attached_to(image, found, tmp_path / "new")
    for partition, one in place.attach("--from", found.data[0]).items():
        topic, _, number = partition.rpartition("-")
        words = ("-t", topic, "-p", number, "-o", "jsonl", "--isolation", level, "--no-control")
        done = klog("dump", place.data, "--remote", place.tier, *words)
        assert done.exit_code == 0, done
        offsets = [json.loads(line)["offset"] for line in done.stdout.splitlines()]
        span = one["remote_start_offset"], one["remote_end_offset"] + 1
        assert offsets == told(found, partition, *span)[level], partition


def test_without_the_key(image: Image, tmp_path: Path) -> None:
    """The epochs and the producers are in encrypted objects."""
    place = attached_to(image, situation(image, "aiven-encrypted"), tmp_path / "new")
    assert {one["id"] for one in place.plan(codes=(8,))["refused"]} == {"encrypted"}


def test_a_commit_that_only_the_lost_log_shows(klog: Klog, image: Image, tmp_path: Path) -> None:
    """`--from` has the marker behind the remote end: what was committed stays so; alone, the tier cannot tell."""
    found = situation(image, "lost-cluster")
    log = next(path for path in (found.data[0] / "tx-0").glob("*.log") if path.stat().st_size)
    lost = Attached(tmp_path / "lost", found.data[0], found.tier)
    marker = lost.data / "tx-0" / log.name
    marker.write_bytes(committed(marker.read_bytes()))
    place = attached_to(image, found, tmp_path / "new")
    assert place.plan("-t", "tx", "--open-transactions", "refuse", codes=(8,))["refused"][0]["id"] == "open-transaction"
    one = place.attach("-t", "tx", "--from", lost.data, "--open-transactions", "refuse")["tx-0"]
    assert one["markers"] == 1
    words = ("-t", "tx", "-p", "0", "-o", "jsonl", "--isolation", "read_committed", "--no-control")
    lines = klog("dump", place.data, "--remote", place.tier, *words).stdout.splitlines()
    first, end = one["ended"][0]["first_offset"], one["remote_end_offset"] + 1
    wanted = [*told(found, "tx-0", 0, first)["read_committed"], *range(first, end)]
    assert [json.loads(line)["offset"] for line in lines] == wanted


def committed(log: bytes) -> bytes:
    """Return a log of one ABORT marker with a COMMIT marker in its place."""
    (found,) = scan(log)
    assert isinstance(found, Batch)
    (record,) = found.records
    producer = found.producer_id, found.producer_epoch, -1
    marker = Record(record.offset, record.timestamp, b"\0\0\0\1", record.value)
    return batch([marker], control=True, transactional=True, producer=producer, leader_epoch=found.leader_epoch)


REFUSED = {
    **dict.fromkeys(("all-missing", "log-missing", "index-missing", "timeindex-missing", "epochs-missing"), "hole"),
    **dict.fromkeys(("log-cut", "log-cut-clean", "log-empty", "epochs-differ"), "hole"),
    **dict.fromkeys(("log-grown", "swapped", "index-odd"), "damaged"),
}
"""The damages of the tier that its objects show by names, sizes, and the two ends of each log."""
ATTACHED = ("first-missing", "healthy", "index-lies", "log-flip", "orphan", "snapshot-flip", "snapshot-missing")


def test_a_damaged_tier_alone(image: Image, tmp_path: Path) -> None:
    """No broker gets a segment that it cannot read, or would skip without an error; the checksums are verify's."""
    place = attached_to(image, situation(image, "damaged"), tmp_path / "new")
    found = place.plan(codes=(4,))
    assert {one["topic"]: one["id"] for one in found["refused"]} == {f"d-{one}": why for one, why in REFUSED.items()}
    assert {one["topic"] for one in found["attached"]} == {f"d-{one}" for one in (*ATTACHED, "txnindex-missing")}
    told_of = {one["topic"]: one["message"] for one in found["refused"]}
    assert told_of["d-timeindex-missing"].endswith("lacks timeindex")
    assert told_of["d-epochs-missing"].endswith("lacks leader_epoch_checkpoint")


def test_a_topic_that_was_once_compacted(image: Image, tmp_path: Path) -> None:
    """Its segments end where no batch does: the tier alone looks as if it had holes, the entries know better."""
    found = situation(image, "gappy")
    place = attached_to(image, found, tmp_path / "new")
    refused = place.plan(codes=(8,))["refused"]
    assert {one["id"] for one in refused} == {"hole"}
    assert all("--from LOG_DIR" in one["next"] and "klog remote fetch" in one["next"] for one in refused)
    attached = place.attach("--from", found.data[0])
    assert attached["was-0"]["remote_end_offset"] == found.clients["was-0"]["offsets"]["latest_tiered"]


def test_all_records_of_a_topic_that_was_once_compacted_come_out_of_the_tier_alone(
    klog: Klog, image: Image, tmp_path: Path
) -> None:
    """The way that the refusal names: a local log with gaps is legal, and adopt takes it."""
    found = situation(image, "gappy")
    fetched = klog("remote", "fetch", "--remote", found.tier, "-t", "was", "--to", tmp_path / "back")
    assert fetched.exit_code == 4, "a tier alone cannot show whether a segment is missing"
    offsets = [
        json.loads(line)["offset"] for line in klog("dump", tmp_path / "back", "-o", "jsonl").stdout.splitlines()
    ]
    told = [offset for offset, *_ in found.clients["was-0"]["uncommitted"]]
    assert offsets == [one for one in told if one <= found.clients["was-0"]["offsets"]["latest_tiered"]]
    other = writable_copy(situation(image, "house").data[0], tmp_path / "other")
    shutil.rmtree(other / "local-0")
    assert klog("adopt", tmp_path / "back/was-0", "--as", "local-0", "--to", other, "--apply").exit_code == 0
    lines = klog("dump", other / "local-0", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == offsets


@pytest.mark.parametrize("name", ["lost-cluster", "lost-cluster-aiven"])
def test_a_bucket_is_attached_as_the_directory(
    klog: Klog, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Over S3: the same segments, logs and topics; the times of the events are those of the objects."""
    found = situation(image, name)
    places = [attached_to(image, found, tmp_path / one) for one in ("directory", "bucket")]
    contents = []
    with s3_server() as server:
        upload(server, found.tier, "tier")
        use(monkeypatch, server)
        for place, uri in zip(places, (found.tier, "s3://tier"), strict=True):
            words = ("--to", place.data, "--now=1795000000000", "--apply", "-o", "json")
            done = run_klog("remote", "attach", "--remote", uri, *words)
            assert done.exit_code == 0, done
            files = {file: one[0] for file, one in tree(place.data).items() if not file.startswith(RLMM)}
            contents.append((json.loads(done.stdout)["attached"], segments(klog, place), files))
    assert contents[0] == contents[1]
