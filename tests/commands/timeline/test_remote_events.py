"""Remote storage in the timeline: copies, failed copies and deletions, as an independent replay has them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
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
