"""Histories that leader epochs do not distinguish: a cluster that was rolled back has the same epochs and offsets
again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from klog.formats.structs.schema import Data
from klog.formats.wire_messages import ApiRequest

from tests.commands.follow.following import Following, batches, marks
from tests.commands.follow.scripted import ScriptedCluster, base_of, end_of, identity, split
from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch, empty_batch

Klog = Callable[..., Ran]
MS = 1_700_000_000_000
SMALL = ("--set", "segment.bytes=600")


def made(first: int, count: int, tag: str, *, kept: Callable[[int], bool] = lambda _: True, **how: Any) -> bytes:
    """Return a batch of the offsets from *first* on; of those that are not *kept*, compaction has left nothing."""
    offsets = range(first, first + count)
    records = [Record(at, MS + at, b"k%d" % at, f"{tag}-{at}".encode()) for at in offsets if kept(at)]
    if not records:
        return empty_batch(first, first + count - 1, producer=(-1, -1, -1))
    return batch(records, base_offset=first, last_offset=first + count - 1, leader_epoch=0, **how)


def log(tag: str, first: int, end: int, size: int = 10, **how: Any) -> list[bytes]:
    return [made(at, min(size, end - at), tag, **how) for at in range(first, end, size)]


def follow(klog: Klog, cluster: ScriptedCluster, copy: Path, *words: str) -> tuple[Ran, dict[str, Any]]:
    """Follow to the end; return the run and its partitions by topic."""
    ran = klog("follow", cluster.bootstrap, "--to", copy, "--output", "json", "--timeout", "3s", *words)
    assert cluster.failed == []
    return ran, {row["topic"]: row for row in json.loads(ran.stdout)["partitions"]}


BASE = log("base", 0, 100)
OTHERS = {
    "the same boundaries": (log("A", 100, 150), log("B", 100, 180), 100),
    "other boundaries": (log("A", 100, 150), log("B", 100, 180, 7), 100),
    "one batch of another size": (log("A", 100, 150, 50), log("B", 100, 180), 100),
    "the cluster ends within the copy": (log("A", 100, 150), log("B", 100, 130), 100),
    "it ends one offset below the copy's end": (log("A", 100, 150), log("B", 100, 149), 100),
    "it ends in the copy's last batch": (log("A", 100, 150, 50), log("B", 100, 125), 100),
    "it ends where the copy does": (log("A", 100, 150), log("B", 100, 150), 100),
    "the first ones are the same": (log("A", 100, 150), log("A", 100, 120) + log("B", 120, 170), 120),
    "the last one alone differs": (log("A", 100, 150), log("A", 100, 140) + log("B", 140, 170), 140),
}  # fmt: skip


@pytest.mark.parametrize("segments", [(), SMALL])
@pytest.mark.parametrize("case", OTHERS)
def test_a_cluster_that_was_rolled_back_is_another_history(
    klog: Klog, tmp_path: Path, case: str, segments: Sequence[str]
) -> None:
    """The copy is cut to the last batch that both have, and its own rest is in the backup; exit code 1."""
    old, new, parted = OTHERS[case]
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": BASE + old, "calm": BASE + old}) as cluster:
        assert follow(klog, cluster, copy, *segments)[0].exit_code == 0
        calm = {name: mark for name, mark in marks(copy).items() if name.startswith("calm-0")}
        cluster.topics["orders"] = BASE + new
        ran, rows = follow(klog, cluster, copy, *segments)
        assert ran.exit_code == 1, ran
        cut = sorted(rows["orders"]["cut"])
        assert (cut[0][0], cut[-1][1]) == (parted, 149)
        assert all(one[1] + 1 == other[0] for one, other in pairwise(cut))
        assert batches(copy / "orders-0") == b"".join(BASE + new)
        assert {name: mark for name, mark in marks(copy).items() if name.startswith("calm-0")} == calm
        backups = [Path(backup) for backup in json.loads(ran.stdout)["backups"]]
        kept = [batches(backup / place / "orders-0") for backup in backups for place in ("tails", "originals")]
        for one in old:
            assert base_of(one) < parted or sum(one in found for found in kept) >= 1
        ran, _ = follow(klog, cluster, copy, *segments)
        assert (ran.exit_code, ran.stderr) == (0, b"")
    assert klog("verify", copy, "--deep").exit_code == 0


def test_a_log_of_which_nothing_is_the_same_is_begun_anew(klog: Klog, tmp_path: Path) -> None:
    """Not even the first batch."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": log("A", 5, 100)}) as cluster:
        assert follow(klog, cluster, copy, *SMALL)[0].exit_code == 0
        cluster.topics["orders"] = log("B", 0, 130)
        ran, rows = follow(klog, cluster, copy, *SMALL)
        assert ran.exit_code == 1, ran
        assert rows["orders"]["cut"] == [[5, 99]]
        assert batches(copy / "orders-0") == b"".join(log("B", 0, 130))


def test_a_copy_that_is_to_be_left_is_left(klog: Klog, tmp_path: Path) -> None:
    """--on-divergence stop holds for this divergence, too."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": BASE + log("A", 100, 150)}) as cluster:
        assert follow(klog, cluster, copy)[0].exit_code == 0
        cluster.topics["orders"] = BASE + log("B", 100, 180)
        ran, _ = follow(klog, cluster, copy, "--on-divergence", "stop")
        assert ran.exit_code == 4
        assert b"the leader has other batches from 100 on" in ran.stderr
    assert batches(copy / "orders-0") == b"".join(BASE + log("A", 100, 150))


LAST = made(90, 10, "base")
UNCHANGED = {
    "nothing": BASE,
    "more": [*BASE, *log("more", 100, 200)],
    "the last batch was cleaned": [*BASE[:-1], made(90, 10, "base", kept=lambda at: at % 3 == 0)],
    "of the last batch its header is left": [*BASE[:-1], made(90, 10, "base", kept=lambda _: False)],
    "the last batch has a delete horizon": [*BASE[:-1], made(90, 10, "base", delete_horizon_ms=MS + 10**6)],
    "the last batch is gone": [*BASE[:-1], *log("more", 110, 150)],
    "the log starts at the copy's end": log("more", 100, 150),
    "the log starts within the last batch": [LAST, *log("more", 100, 150)],
    "all is deleted": [],
}  # fmt: skip


@pytest.mark.parametrize("segments", [(), SMALL])
@pytest.mark.parametrize("case", UNCHANGED)
def test_what_retention_and_compaction_do_is_no_other_history(
    klog: Klog, tmp_path: Path, case: str, segments: Sequence[str]
) -> None:
    """No backup, no new file, exit code 0; later records are appended."""
    copy, new = tmp_path / "copy", UNCHANGED[case]
    with ScriptedCluster({"orders": BASE}) as cluster:
        assert follow(klog, cluster, copy, *segments)[0].exit_code == 0
        before, status = batches(copy / "orders-0"), marks(copy)
        cluster.topics["orders"] = new
        cluster.starts["orders"] = 100 if case == "all is deleted" else 95 if "within" in case else 0
        sent: list[int] = []

        def count(_: ApiRequest, body: Data) -> Data:
            sent.append(len(body["responses"][0]["partitions"][0]["records"]))
            return body

        cluster.changes["Fetch"] = count
        ran, rows = follow(klog, cluster, copy, *segments)
        assert (ran.exit_code, rows["orders"]["cut"]) == (0, []), ran
        assert not (tmp_path / "klog-backup").exists()
        assert batches(copy / "orders-0") == before + b"".join(one for one in new if end_of(one) > 100)
        if case == "nothing":
            assert marks(copy) == status
            assert sum(sent) == len(LAST)


def test_a_copy_that_runs_on_looks_again_behind_each_connection(tmp_path: Path) -> None:
    """A broker may be rolled back while it is stopped; --continuous meets it by a new connection."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": BASE + log("A", 100, 150)}) as cluster:
        with Following(cluster.bootstrap, copy) as running:
            running.wait_for("^orders-0 append .* LEO=150$")
            cluster.topics["orders"] = BASE + log("B", 100, 180)
            cluster.drop_connections()
            running.wait_for("^orders-0 append .* LEO=180$")
            assert running.end() == 1, running.said
            assert "the leader has other batches from 100 on" in running.said
        assert cluster.failed == []
    assert batches(copy / "orders-0") == b"".join(BASE + log("B", 100, 180))


class SessionCluster(ScriptedCluster):
    """A leader that keeps a fetch session as a broker does: it names only partitions that have something new."""

    def __init__(self, topics: dict[str, list[bytes]]) -> None:
        self._session: dict[str, Data] = {}
        self._told: dict[str, tuple[int, int]] = {}
        super().__init__(topics)

    def _fetch(self, body: Data) -> Data:
        is_full = body["sessionEpoch"] <= 0
        if is_full:
            self._session, self._told = {}, {}
        for topic in body["forgottenTopicsData"]:
            self._session.pop(topic["topicId"])
            self._told.pop(topic["topicId"], None)
        for topic in body["topics"]:
            self._session[topic["topicId"]] = topic
        found = super()._fetch(body | {"topics": list(self._session.values())})
        responses = []
        for topic in found["responses"]:
            (row,) = topic["partitions"]
            marks = row["highWatermark"], row["logStartOffset"]
            if row["records"] or "divergingEpoch" in row or self._told.get(topic["topicId"]) != marks:
                responses.append(topic)
            self._told[topic["topicId"]] = marks
        return {"sessionId": 9, "responses": responses}

    def _rows(self, topic: str, asked: Data) -> Data:
        if not self.topics[topic] and asked["fetchOffset"] > 0:
            parted = {"epoch": 0, "endOffset": 0}
            marks = {"highWatermark": 0, "logStartOffset": 0}
            return {"partitionIndex": 0, "records": b"", "divergingEpoch": parted} | marks
        return super()._rows(topic, asked)


@pytest.mark.parametrize("others", [0, 1])
def test_a_log_that_became_empty_is_caught_up(klog: Klog, tmp_path: Path, others: int) -> None:
    """Its session names no partition that has nothing new: an empty log at offset 0, after the copy was cut to 0."""
    copy = tmp_path / "copy"
    with SessionCluster({"orders": BASE} | {f"other{n}": BASE for n in range(others)}) as cluster:
        assert follow(klog, cluster, copy)[0].exit_code == 0
        cluster.topics["orders"] = []
        ran, rows = follow(klog, cluster, copy)
        assert ran.exit_code == 1, ran
        assert rows["orders"]["cut"] == [[0, 99]]
        assert (rows["orders"]["log_end_offset"], rows["orders"]["error"]) == (0, None)
        assert follow(klog, cluster, copy)[0].exit_code == 0
        assert identity("orders") == rows["orders"]["topic_id"]


def parting(epoch: int, end: int, when: Callable[[Data], bool]) -> Callable[[ApiRequest, Data], Data]:
    """Return the answers of a leader: a batch at a time, and if *when* holds none, but the end of *epoch*."""

    def change(request: ApiRequest, said: Data) -> Data:
        for topic, answered in zip((request.body or {})["topics"], said["responses"], strict=True):
            for asked, row in zip(topic["partitions"], answered["partitions"], strict=True):
                row["records"] = b"".join(split(row["records"])[:1])
                if when(asked):
                    row |= {"errorCode": 0, "records": b"", "divergingEpoch": {"epoch": epoch, "endOffset": end}}
        return said

    return change


def test_a_leader_whose_epochs_do_not_ascend_is_not_followed_in_circles(klog: Klog, tmp_path: Path) -> None:
    """It sends the same batches after each cut, and denies each time that they are of its history."""
    copy = tmp_path / "copy"
    with ScriptedCluster(
        {"orders": BASE}, {"Fetch": parting(0, 50, lambda asked: asked["fetchOffset"] >= 69)}
    ) as cluster:
        ran, rows = follow(klog, cluster, copy)
        assert ran.exit_code == 5, ran
        assert rows["orders"]["cut"] == [[50, 69]]
        assert ran.stderr.count(b"copy stays unchanged") == 1
    assert batches(copy / "orders-0") == b"".join(BASE[:7])
    assert klog("verify", copy, "--deep").exit_code == 0


def test_behind_a_gap_no_epoch_is_asked_for(klog: Klog, tmp_path: Path) -> None:
    """A leader that has lost its first segments may have another end of the epoch that the copy had before the gap."""
    copy, later = tmp_path / "copy", log("base", 120, 150)
    with ScriptedCluster({"orders": BASE}) as cluster:
        assert follow(klog, cluster, copy)[0].exit_code == 0
        cluster.topics["orders"] = later
        cluster.changes["Fetch"] = parting(
            0, 30, lambda asked: asked["fetchOffset"] == 120 and asked["lastFetchedEpoch"] >= 0
        )
        cluster.changes["OffsetForLeaderEpoch"] = lambda _, said: {
            "topics": [
                topic | {"partitions": [row | {"endOffset": 30} for row in topic["partitions"]]}
                for topic in said["topics"]
            ]
        }
        ran, rows = follow(klog, cluster, copy)
        assert ran.exit_code == 5, ran
        assert rows["orders"]["cut"] == [[30, 99]]
        assert rows["orders"]["missed"] == [[30, 119]]
    assert batches(copy / "orders-0") == b"".join([*BASE[:3], *later])


@pytest.mark.parametrize(
    ("policy", "is_cleaned", "code"), [("compact", True, 5), ("compact", False, 1), ("delete", True, 1)]
)
def test_a_cut_in_a_compacted_topic_may_cost_keys(
    klog: Klog, tmp_path: Path, policy: str, is_cleaned: bool, code: int
) -> None:
    """Records below the cut were removed because of later ones, which are cut: it is reported until the copy begins
    anew."""
    copy, kept = tmp_path / "copy", log("base", 0, 100, kept=lambda at: not is_cleaned or at > 50 or at % 3 > 0)
    with ScriptedCluster({"orders": kept + log("A", 100, 150)}) as cluster:
        cluster.settings["orders"] = {"cleanup.policy": policy}
        assert follow(klog, cluster, copy, *SMALL)[0].exit_code == 0
        cluster.topics["orders"] = whole = BASE + log("B", 100, 130)
        ran, _ = follow(klog, cluster, copy, *SMALL)
        assert ran.exit_code == code, ran
        assert (b"keys may be missing" in ran.stderr) == (code == 5)
        if code == 5:
            assert follow(klog, cluster, copy, *SMALL)[0].exit_code == 4
            assert follow(klog, cluster, copy, *SMALL, "--on-cleaned", "anew")[0].exit_code == 1
            assert batches(copy / "orders-0") == b"".join(whole)
        assert follow(klog, cluster, copy, *SMALL)[0].exit_code == 0
