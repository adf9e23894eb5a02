"""Remote storage in the timeline: copies, failed copies and deletions, as an independent replay has them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.support.s3_server import s3_server, upload, use
from tests.support.tiers import situation, unpack

Klog = Callable[..., Ran]
KINDS = "segment-tiered,segment-deleted-remotely,copy-failed,tiering-enabled,tiering-disabled"


def events(klog: Klog, *paths: Path, kinds: str = KINDS, more: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in klog("timeline", *paths, "--kind", kinds, "-o", "jsonl", *more).stdout.splitlines()
    ]


def test_copies_and_deletions_of_each_partition(klog: Klog, tmp_path: Path) -> None:
    """`gone` was deleted with all of its segments, `short` up to offset 61; nothing was deleted of `fine`."""
    data, _ = unpack(tmp_path)
    found = events(klog, data)
    counts = Counter((one["topic"], one["kind"]) for one in found)
    assert counts["gone", "segment-tiered"] == counts["gone", "segment-deleted-remotely"] > 0
    assert (counts["fine", "segment-tiered"], counts["fine", "segment-deleted-remotely"]) == (6, 0)
    assert counts["short", "segment-deleted-remotely"] == 1
    assert {kind for topic, kind in counts if topic == "fine"} == {"tiering-enabled", "segment-tiered"}
    assert [one["time"] for one in found] == sorted(one["time"] for one in found)
    first = next(one for one in found if one["kind"] == "segment-tiered")
    assert (first["clock"], first["partition"], first["node"]) == ("broker", 0, 1)
    assert first["file"].startswith("__remote_log_metadata-")


def test_topics_and_partitions_narrow_them(klog: Klog, tmp_path: Path) -> None:
    data, _ = unpack(tmp_path)
    assert {one["topic"] for one in events(klog, data, more=("-t", "fine"))} == {"fine"}
    text = klog("timeline", data, "-t", "fine", "--kind", "segment-tiered", "--limit", "1").stdout.decode()
    assert " fine-0 " in text, "the offset of an event in __remote_log_metadata is none of the partition's"
    assert "offsets 0–15, is copied to remote storage" in text


LOG_KINDS = "epoch,txn-begin,txn-commit,txn-abort,txn-open,roll,producer,first-record,last-record,silence"


def of_log(klog: Klog, *arguments: object) -> list[tuple[Any, ...]]:
    """The events of logs, without the places of their files, which differ."""
    wanted = ("time", "clock", "kind", "message", "topic", "partition", "offset", "position")
    found = [json.loads(line) for line in klog("timeline", *arguments, "-o", "jsonl").stdout.splitlines()]
    return [tuple(one.get(name) for name in wanted) for one in found if one["kind"] in LOG_KINDS.split(",")]


def test_both_tiers_have_the_events_of_the_log_that_fetch_makes_of_them(klog: Klog, tmp_path: Path) -> None:
    """Without --remote the events of a partition begin with its first local segment."""
    data, tier = unpack(tmp_path)
    klog("remote", "fetch", data, "--remote", tier, "-t", "fine", "-t", "short", "--to", tmp_path / "back")
    whole = of_log(klog, tmp_path / "back")
    assert of_log(klog, data, "--remote", tier, "-t", "fine", "-t", "short") == whole
    local = of_log(klog, data, "-t", "fine", "-t", "short")
    assert sum(kind == "roll" for _, _, kind, *_ in whole) == sum(kind == "roll" for _, _, kind, *_ in local) + 7
    assert {one[6] for one in whole if one[2] == "first-record"} == {0, 42}


def test_a_tier_alone_has_the_events_of_its_records(klog: Klog, tmp_path: Path) -> None:
    """The cluster is gone: the objects still show when the log rolled, who wrote, and when it ended."""
    data, tier = unpack(tmp_path)
    whole = of_log(klog, data, "--remote", tier, "-t", "fine", "--tier", "remote")
    assert of_log(klog, "--remote", tier, "-t", "fine", "-p", "0") == whole != []
    rows = klog("timeline", "--remote", tier, "-t", "fine", "-o", "jsonl").stdout.splitlines()
    assert {json.loads(row)["log_dir"] for row in rows} == {str(tier)}
    nothing = klog("timeline", "--remote", tier, "-t", "fine", "-p", "9")
    assert (nothing.exit_code, b"no partition 9 of fine" in nothing.stderr) == (16, True)
    assert klog("timeline", "--remote", tier).exit_code == 16


def test_a_bucket_has_the_events_of_the_directory(klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without log dirs; the bucket is named as it was given."""
    data, tier = unpack(tmp_path)
    with s3_server() as server:
        upload(server, tier, "tier")
        use(monkeypatch, server)
        assert of_log(klog, "--remote", "s3://tier", "-t", "fine") == of_log(klog, "--remote", tier, "-t", "fine") != []
        assert of_log(klog, data, "--remote", "s3://tier") == of_log(klog, data, "--remote", tier)
        rows = klog("timeline", "--remote", "s3://tier", "-t", "fine", "-o", "jsonl").stdout.splitlines()
        assert {json.loads(row)["log_dir"] for row in rows} == {"s3://tier"}


def test_damage_in_the_tier_is_named_by_the_key_of_its_object(klog: Klog, tmp_path: Path) -> None:
    data, tier = unpack(tmp_path)
    command = ("timeline", data, "--remote", tier, "--kind", "damage", "-o", "jsonl")
    assert (klog(*command).exit_code, klog(*command).stdout) == (0, b"")
    first, second, *_ = sorted(tier.glob("**/fine-0-*/*.log"))
    times = [one[0] for one in of_log(klog, data, "--remote", tier, "-t", "fine") if one[2] == "roll"]
    first.unlink()
    second.write_bytes(second.read_bytes()[:-10])
    done = klog(*command)
    gone, torn, short = (json.loads(line) for line in done.stdout.splitlines())
    assert done.exit_code == 4
    assert b"2 damaged places" not in done.stderr, "the cut, and the bytes that are missing behind it, are two"
    assert b"klog remote verify explains them" in done.stderr
    assert (gone["file"], gone["offset"], gone["clock"]) == (str(first.relative_to(tier)), 0, "producer")
    assert gone["message"].endswith("no such object; offsets 0–15 lost")
    assert gone["time"] < times[0], "the metadata have the largest timestamp of its records"
    assert {torn["file"], short["file"]} == {str(second.relative_to(tier))}
    assert [one["message"].partition(":")[0] for one in (torn, short)] == ["torn-tail", "unreadable"]


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["house", "house391", "orphans", "stuck"])
def test_the_counts_are_those_of_a_replay(klog: Klog, image: Callable[[str], Path], name: str) -> None:
    found = situation(image, name)
    shown = events(klog, *found.data)
    deleted = Counter(
        f"{one['topic']}-{one['partition']}" for one in shown if one["kind"] == "segment-deleted-remotely"
    )
    truth = {key.partition(" ")[0]: count for key, count in found.truth["deleted_segments"]["before"].items() if count}
    assert dict(deleted) == truth
    kept = Counter(f"{one['topic']}-{one['partition']}" for one in found.truth["segments"]["before"])
    tiered = Counter(f"{one['topic']}-{one['partition']}" for one in shown if one["kind"] == "segment-tiered")
    assert tiered == kept + deleted


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["interrupted", "interrupted391"])
def test_copies_that_failed(klog: Klog, image: Callable[[str], Path], name: str) -> None:
    """4.3.1 takes a failed copy back, 3.9.1 begins it again under another id: each try is one event."""
    found = situation(image, name, "after")
    failed = [one for one in events(klog, *found.data) if one["kind"] == "copy-failed"]
    assert {one["topic"] for one in failed} >= {"fails"}
    assert len({one["message"] for one in failed}) == len(failed) > 2
    off = events(klog, *situation(image, "house").data, kinds="tiering-disabled")
    assert [(one["topic"], one["message"]) for one in off] == [
        ("off", "topic off: remote.storage.enable = false (was true)")
    ]
