"""A copy that has lost its first segments: missing records count as lost, unless there is an explanation."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.plain.encode import Record, batch
from tests.support import metadata_logs
from tests.support.metadata_logs import uuid

Run = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("hasty")
BASES, END = (0, 20, 40), 60
"""A log has three segments of 20 records, a batch for each record."""
MINUTE = 60_000
FOREVER = {"retention.ms": "-1"}


def log(first: int, end: int, ms: int, key: Callable[[int], bytes]) -> list[bytes]:
    return [batch([Record(offset, ms, key(offset), b"value %d" % offset)]) for offset in range(first, end)]


class Disks:
    """The log dirs of three nodes, the first of which has a metadata log; each has all records, and stopped cleanly.

    *settings*: of the topic; None: no metadata log.  *ages*: of the records of each segment, in ms.
    """

    def __init__(
        self,
        root: Path,
        settings: Mapping[str, str] | None = FOREVER,
        ages: Mapping[int, int] | int = MINUTE,
        key: Callable[[int], bytes] = lambda offset: b"k",
    ) -> None:
        self.root, self.key = root, key
        self.now = int(time.time() * 1000)
        self.ages = ages if isinstance(ages, Mapping) else dict.fromkeys(BASES, ages)
        if settings is not None:
            self._metadata(settings)
        for node in (1, 2, 3):
            place = self.place(node)
            place.mkdir(parents=True)
            (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(7)}\n")
            (place / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
            for base in BASES:
                self.write(node, base, base + 20)
            properties = f"version=1\ncluster.id=x\nnode.id={node}\ndirectory.id={uuid(100 + node)}\n"
            (place.parent / "meta.properties").write_text(properties)
            (place.parent / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
            self.checkpoint(node, "recovery-point", END)
            self.checkpoint(node, "replication", END)

    def _metadata(self, settings: Mapping[str, str]) -> None:
        made = metadata_logs.MetadataLog(self.place(1).parent)
        made.add(metadata_logs.value("FeatureLevel", name="metadata.version", featureLevel=16))
        for node in (1, 2, 3):
            register = {"brokerId": node, "brokerEpoch": 10 + node, "incarnationId": uuid(node)}
            made.add(metadata_logs.value("RegisterBroker", **register, logDirs=[uuid(100 + node)]))
        made.add(metadata_logs.topic("t", 7))
        fields = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leaderEpoch": 0, "partitionEpoch": 0}
        made.add(metadata_logs.value("Partition", topicId=uuid(7), partitionId=0, **fields))
        for name, value in settings.items():
            made.add(metadata_logs.config(2, "t", name, value))

    def place(self, node: int) -> Path:
        return self.root / f"broker-{node}" / "t-0"

    @property
    def paths(self) -> list[Path]:
        return [self.place(node).parent for node in (1, 2, 3)]

    def write(self, node: int, base: int, end: int) -> None:
        ms = self.now - self.ages[max(one for one in BASES if one <= base)]
        (self.place(node) / f"{base:020}.log").write_bytes(b"".join(log(base, end, ms, self.key)))
        (self.place(node) / f"{base:020}.index").touch()
        (self.place(node) / f"{base:020}.timeindex").touch()

    def lose(self, node: int, *bases: int) -> None:
        """Remove the files of segments."""
        for base in bases:
            for path in self.place(node).glob(f"{base:020}.*"):
                path.unlink()

    def checkpoint(self, node: int, kind: str, offset: int) -> None:
        (self.place(node).parent / f"{kind}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")

    def compared(self, klog: Run, code: int) -> dict[str, Any]:
        done = klog("replicas", "diff", *self.paths, "--output", "json")
        assert done.exit_code == code, (done.exit_code, done.stdout, done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)["partitions"][0]
        return found

    def lost(self, klog: Run, code: int = 4) -> dict[str, int]:
        return {node: one["records"] for node, one in self.compared(klog, code)["lost_if_leads"].items()}

    def rescued(self, klog: Run, leader: int) -> list[int]:
        done = klog("replicas", "rescue", *self.paths, "--if-leads", str(leader), "--to", "-")
        assert done.exit_code == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(row["value"] == f"value {row['offset']}" for row in rows)
        return [row["offset"] for row in rows]

    def plan(self, klog: Run, *options: str, code: int = 0) -> dict[str, Any]:
        done = klog("replicas", "plan", *self.paths, *options, "--apply", "--output", "json")
        assert done.exit_code == code, (done.exit_code, done.stdout, done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def names(self, node: int) -> list[str]:
        return sorted(path.name for path in self.place(node).glob("*.log"))


@pytest.mark.parametrize("node", [1, 2, 3])
def test_what_a_copy_has_lost_at_its_beginning_counts(node: int, klog: Run, tmp_path: Path) -> None:
    """The leader, or a follower: whoever leads later raises the log start of all."""
    disks = Disks(tmp_path)
    disks.lose(node, 0, 20)
    found = disks.compared(klog, 4)
    assert found["verdict"] == "behind"
    assert {one: lost["records"] for one, lost in found["lost_if_leads"].items()} == {
        str(one): 40 if one == node else 0 for one in (1, 2, 3)
    }
    assert found["lost_if_leads"][str(node)] == {"records": 40, "ranges": [[0, 39]], "committed_below": 40}
    assert (found["copies"][str(node)]["log_start"], found["copies"][str(node)]["expected_from"]) == (40, 0)
    assert disks.rescued(klog, node) == list(range(40))
    assert disks.rescued(klog, node % 3 + 1) == []


def test_two_of_three_have_lost_their_beginning(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.lose(1, 0)
    disks.lose(2, 0, 20)
    assert disks.lost(klog) == {"1": 20, "2": 40, "3": 0}
    plan = disks.plan(klog)
    assert [(one["kept"], [target["node"] for target in one["targets"]]) for one in plan["copies"]] == [(3, [1, 2])]
    assert disks.lost(klog, 0) == {"1": 0, "2": 0, "3": 0}


@pytest.mark.parametrize("keep", [(), ("--keep", "longest"), ("--keep", "newest"), ("--keep", "2")])
def test_a_plan_gives_the_beginning_back(keep: tuple[str, ...], klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.lose(1, 0, 20)
    plan = disks.plan(klog, *keep)
    assert (plan["losses"], [one["node"] for one in plan["copies"][0]["targets"]]) == ([], [1])
    assert plan["copies"][0]["targets"][0]["records_added"] == 40
    assert disks.names(1) == disks.names(2)
    assert disks.compared(klog, 0)["verdict"] == "same"
    assert klog("undo", plan["backup"], "--apply").exit_code == 0
    assert disks.names(1) == [f"{40:020}.log"]


def test_of_a_copy_without_its_beginning_and_one_without_its_end_none_is_whole(klog: Run, tmp_path: Path) -> None:
    """Nothing is done without a word about what that costs."""
    disks = Disks(tmp_path)
    disks.lose(1, 0, 20)
    for node in (2, 3):
        disks.write(node, 40, 50)
    assert disks.lost(klog) == {"1": 40, "2": 10, "3": 10}
    plan = disks.plan(klog, code=4)
    assert [one["reason"] for one in plan["left"]] == ["no copy has all records: --keep or --choose"]
    assert not plan["applied"]
    assert disks.rescued(klog, 1) == list(range(40))


def test_a_copy_that_begins_behind_the_end_of_another_one_is_rescued_from(klog: Run, tmp_path: Path) -> None:
    """They have nothing in common: whoever leads, all records of the other are lost."""
    disks = Disks(tmp_path)
    disks.lose(1, 0, 20)
    for node in (2, 3):
        disks.lose(node, 20, 40)
    found = disks.compared(klog, 4)
    assert found["verdict"] == "incomparable"
    assert {one: lost["records"] for one, lost in found["lost_if_leads"].items()} == {"1": 20, "2": 20, "3": 20}
    assert disks.rescued(klog, 1) == list(range(20))
    assert disks.rescued(klog, 2) == list(range(40, 60))
    assert disks.plan(klog, "--keep", "1", code=4)["left"]


@pytest.mark.parametrize("keep", [("--keep", "longest"), ("--keep", "1"), ("--choose", "t-0=1"), ("--keep", "kafka")])
def test_a_log_start_is_raised_over_records_only_with_a_loss(keep: tuple[str, ...], klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.lose(1, 0, 20)
    for node in (2, 3):
        disks.write(node, 40, 50)
    plan = disks.plan(klog, *keep)
    losses = [(one["first_offset"], one["last_offset"], one["records"], one["reason"]) for one in plan["losses"]]
    assert losses == [(0, 39, 40, "log start raised")] * 2
    assert [target["records_lost"] for target in plan["copies"][0]["targets"]] == [40, 40]
    assert (disks.place(2).parent / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 40\n"


def test_the_copy_of_equal_ends_that_is_asked_for_is_kept_with_a_loss(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.lose(1, 0, 20)
    plan = disks.plan(klog, "--choose", "t-0=1")
    assert [one["records"] for one in plan["losses"]] == [40, 40]


def test_a_bad_batch_is_no_reason_to_begin_later(klog: Run, tmp_path: Path) -> None:
    """The damaged copy that has its beginning is repaired, and the other one receives it back."""
    disks = Disks(tmp_path)
    shutil.rmtree(disks.place(3))
    disks.lose(1, 0, 20)
    for node, base in ((1, 40), (2, 20)):
        path = disks.place(node) / f"{base:020}.log"
        content = bytearray(path.read_bytes())
        content[70] ^= 1
        path.write_bytes(content)
    disks.plan(klog, "--repair", code=4)
    shutil.copytree(disks.place(2), disks.place(3))
    disks.write(3, 20, 40)
    assert disks.plan(klog, "--repair")["losses"] == []
    assert disks.lost(klog, 0) == {"1": 0, "2": 0, "3": 0}


# ---------------------------------------------------------------- a log start above the leader epochs


def hide(disks: Disks, node: int, log_start: int, epochs_start: int) -> None:
    """Write a log start, and the start of the leader epochs."""
    disks.checkpoint(node, "log-start", log_start)
    (disks.place(node) / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {epochs_start}\n")


@pytest.mark.parametrize("node", [1, 3])
def test_a_log_start_above_the_leader_epochs_explains_nothing(node: int, klog: Run, tmp_path: Path) -> None:
    """A bit of the checkpoint has flipped: DeleteRecords would have moved the epoch as well."""
    disks = Disks(tmp_path)
    for one in (1, 2, 3):
        hide(disks, one, 5, 5)
    hide(disks, node, 13, 5)
    assert disks.lost(klog) == {str(one): 8 if one == node else 0 for one in (1, 2, 3)}
    assert disks.rescued(klog, node) == list(range(5, 13))
    shown = klog("replicas", "diff", *disks.paths).stdout.decode()
    assert f"! {node} begins at 13, and its leader epochs at 5: the records between are not served" in shown
    plan = disks.plan(klog)
    assert (plan["losses"], [one["node"] for one in plan["copies"][0]["targets"]]) == ([], [node])
    assert plan["copies"][0]["targets"][0]["records_added"] == 8
    assert disks.lost(klog, 0) == {"1": 0, "2": 0, "3": 0}


@pytest.mark.parametrize(("limit", "age", "lost"), [("retention.bytes", MINUTE, 12), ("retention.ms", 120 * MINUTE, 0)])
def test_retention_by_size_explains_no_log_start_within_a_segment(
    limit: str, age: int, lost: int, klog: Run, tmp_path: Path
) -> None:
    """The first segment of the others is not due by size; the next pass deletes expired records in any case."""
    size = sum(path.stat().st_size for path in Disks(tmp_path / "size").place(1).glob("*.log"))
    limits = {"retention.bytes": str(size - 1), "retention.ms": "3600000"}
    disks = Disks(tmp_path / "data", {"retention.ms": "-1", limit: limits[limit]}, age)
    hide(disks, 1, 13, 1)
    assert disks.lost(klog) == {"1": lost, "2": 0, "3": 0}


def test_records_that_another_copy_deleted_are_not_missed(klog: Run, tmp_path: Path) -> None:
    """DeleteRecords up to 10 is in the checkpoint of one copy, with its epoch."""
    disks = Disks(tmp_path)
    hide(disks, 1, 13, 5)
    hide(disks, 2, 10, 10)
    assert disks.lost(klog) == {"1": 3, "2": 0, "3": 0}


@pytest.mark.parametrize("epochs_start", [13, 0])
def test_records_that_were_deleted_are_no_loss(epochs_start: int, klog: Run, tmp_path: Path) -> None:
    """The epoch has moved, or was rebuilt from the log."""
    disks = Disks(tmp_path)
    hide(disks, 1, 13, epochs_start)
    assert disks.lost(klog, 0) == {"1": 0, "2": 0, "3": 0}
    assert disks.plan(klog)["copies"] == []


def test_copies_that_hide_the_same_records_are_not_called_equal(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    for node in (1, 2, 3):
        hide(disks, node, 13, 5)
    found = disks.compared(klog, 4)
    assert found["verdict"] == "same"
    assert [text for text in found["advice"] if "klog doctor" in text]
    done = klog("replicas", "diff", *disks.paths)
    assert b"1 partition has equal copies: a log start hides records\n" in done.stdout
    (left,) = disks.plan(klog, code=4)["left"]
    assert left["reason"] == "its log start hides records on 1: klog doctor"


# ---------------------------------------------------------------- what explains it


@pytest.mark.parametrize(
    ("settings", "ages"),
    [
        ({"retention.ms": "3600000"}, {0: 120 * MINUTE, 20: 90 * MINUTE, 40: MINUTE}),
        ({"retention.ms": "-1", "retention.bytes": "1500"}, MINUTE),
        ({"retention.ms": "3600000", "cleanup.policy": "compact,delete"}, 120 * MINUTE),
        ({}, 8 * 24 * 60 * MINUTE),
    ],
    ids=["time", "size", "compact and delete", "default"],
)
def test_retention_explains_a_later_beginning(
    settings: Mapping[str, str], ages: Mapping[int, int] | int, klog: Run, tmp_path: Path
) -> None:
    """No alarm: the other copies lose these segments as well, at the next pass."""
    disks = Disks(tmp_path, settings, ages, key=lambda offset: b"k%d" % offset)
    disks.lose(1, 0, 20)
    found = disks.compared(klog, 0)
    assert (found["verdict"], found["copies"]["1"]["expected_from"]) == ("same", 40)
    assert disks.rescued(klog, 1) == []
    assert disks.plan(klog)["copies"] == []


@pytest.mark.parametrize(
    ("settings", "ages", "lost"),
    [
        ({"retention.ms": "3600000"}, 5 * MINUTE, 40),
        ({"retention.ms": "3600000"}, {0: 120 * MINUTE, 20: 5 * MINUTE, 40: MINUTE}, 20),
        ({"retention.ms": "-1", "retention.bytes": "1000000"}, 10**12, 40),
        ({"retention.ms": "3600000", "cleanup.policy": "compact"}, 120 * MINUTE, 40),
        (None, 8 * 24 * 60 * MINUTE, 40),
    ],
    ids=["five minutes", "the second segment", "far below the size", "no delete", "unknown settings"],
)
def test_retention_that_would_not_have_removed_it_explains_nothing(
    settings: Mapping[str, str] | None, ages: Mapping[int, int] | int, lost: int, klog: Run, tmp_path: Path
) -> None:
    disks = Disks(tmp_path, settings, ages, key=lambda offset: b"k%d" % offset)
    disks.lose(1, 0, 20)
    assert disks.lost(klog) == {"1": lost, "2": 0, "3": 0}
    assert disks.rescued(klog, 1) == list(range(40 - lost, 40))
    said = klog("replicas", "diff", *disks.paths).stdout.decode()
    assert f"1 begins at 40, and nothing explains that it has no records from {40 - lost} on" in said
    assert ("the topic's settings are not known" in said) == (settings is None)


def test_brokers_roll_at_different_offsets(klog: Run, tmp_path: Path) -> None:
    """Records that the other copy has in a segment with younger ones were old enough, too."""
    disks = Disks(tmp_path, {"retention.ms": "3600000"}, {0: 120 * MINUTE, 20: 90 * MINUTE, 40: MINUTE})
    for node in (2, 3):
        for base in (20, 40):
            content = (disks.place(node) / f"{base:020}.log").read_bytes()
            with open(disks.place(node) / f"{0:020}.log", "ab") as first:
                first.write(content)
            disks.lose(node, base)
    disks.lose(1, 0, 20)
    assert disks.compared(klog, 0)["verdict"] == "same"


@pytest.mark.parametrize("node", [1, 2])
def test_deleted_records_are_not_missing(node: int, klog: Run, tmp_path: Path) -> None:
    """DeleteRecords leaves a line in the checkpoint: of the copy itself, or of one that still has the segments."""
    disks = Disks(tmp_path)
    disks.lose(1, 0)
    disks.checkpoint(node, "log-start", 25 if node == 1 else 20)
    found = disks.compared(klog, 0)
    assert (found["verdict"], found["copies"]["1"]["expected_from"]) == ("same", 25 if node == 1 else 20)
    assert disks.plan(klog)["copies"] == []


def emptied(disks: Disks, node: int, line: int) -> None:
    """Leave an empty log behind DeleteRecords up to *line*, whose segments are gone."""
    disks.lose(node, *BASES)
    for kind in ("log", "index", "timeindex"):
        (disks.place(node) / f"{line:020}.{kind}").touch()
    disks.checkpoint(node, "log-start", line)
    for kind in ("recovery-point", "replication"):
        disks.checkpoint(node, kind, line)
    (disks.place(node) / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {line}\n")


@pytest.mark.parametrize("has_segments", [False, True])
def test_a_copy_that_was_emptied_by_deletion_stays_empty(has_segments: bool, klog: Run, tmp_path: Path) -> None:
    """DeleteRecords up to the log end; the other brokers were killed before they wrote the line."""
    disks = Disks(tmp_path)
    if has_segments:
        disks.checkpoint(1, "log-start", END)
        (disks.place(1) / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {END}\n")
    else:
        emptied(disks, 1, END)
    assert disks.compared(klog, 0)["verdict"] == "same"
    assert disks.plan(klog)["copies"] == []


def test_deleted_records_do_not_return_with_those_behind_them(klog: Run, tmp_path: Path) -> None:
    """The other copies went on from the line where the empty one ends."""
    disks = Disks(tmp_path)
    emptied(disks, 1, 30)
    found = disks.compared(klog, 4)
    assert (found["verdict"], found["lost_if_leads"]["1"]["records"]) == ("missing", 30)
    ((target,),) = (one["targets"] for one in disks.plan(klog)["copies"])
    assert (target["node"], target["records_added"]) == (1, 30)
    lines = (disks.place(1).parent / "log-start-offset-checkpoint").read_text().splitlines()
    assert lines[2:] == ["t 0 30"]
    assert sorted(one.name for one in disks.place(1).glob("*.log")) == [f"{20:020}.log", f"{40:020}.log"]
    assert disks.compared(klog, 0)["copies"]["1"]["log_start"] == 30


def test_an_empty_copy_without_an_explanation_is_filled(klog: Run, tmp_path: Path) -> None:
    """Its log start is only that of the first segment."""
    disks = Disks(tmp_path)
    emptied(disks, 1, END)
    (disks.place(1).parent / "log-start-offset-checkpoint").unlink()
    found = disks.compared(klog, 4)
    assert (found["verdict"], found["lost_if_leads"]["1"]["records"]) == ("missing", END)
    ((target,),) = (one["targets"] for one in disks.plan(klog)["copies"])
    assert (target["node"], target["records_added"]) == (1, END)
    assert disks.compared(klog, 0)["copies"]["1"]["log_start"] == 0


@pytest.mark.parametrize(("line", "code", "lost"), [(19, 4, 21), (40, 0, 0), (10**9, 4, 40)])
def test_only_what_is_below_the_line_was_deleted(line: int, code: int, lost: int, klog: Run, tmp_path: Path) -> None:
    """A line that is older than the loss explains only earlier deletions; one beyond the log nothing."""
    disks = Disks(tmp_path)
    disks.lose(1, 0, 20)
    if line < 10**9:
        disks.checkpoint(1, "log-start", line)
    else:
        disks.checkpoint(3, "log-start", line)
        shutil.rmtree(disks.place(3))
    found = disks.compared(klog, code)
    assert found["lost_if_leads"]["1"]["records"] == lost


def test_all_copies_that_could_have_it_begin_there(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    for node in (1, 2, 3):
        disks.lose(node, 0, 20)
    found = disks.compared(klog, 0)
    assert (found["verdict"], found["lost_if_leads"]["1"]["records"]) == ("same", 0)


def test_remote_storage_serves_what_is_no_longer_local(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path, {"retention.ms": "-1", "remote.storage.enable": "true"})
    disks.lose(1, 0, 20)
    assert disks.compared(klog, 0)["verdict"] == "same"


@pytest.mark.parametrize(("cleaned", "lost"), [(None, 40), (40, 20), (END, 20)])
def test_a_compacted_copy_has_lost_what_no_later_record_replaces(
    cleaned: int | None, lost: int, klog: Run, tmp_path: Path
) -> None:
    """Every other record has a key of its own, and the rest one that comes again at the end."""
    key = lambda offset: b"often" if offset % 2 else b"k%d" % offset  # noqa: E731
    disks = Disks(tmp_path, {"cleanup.policy": "compact"}, key=key)
    disks.lose(1, 0, 20)
    if cleaned is not None:
        disks.checkpoint(1, "cleaner", cleaned)
    found = disks.compared(klog, 4)
    assert (found["verdict"], found["lost_if_leads"]["1"]["records"]) == ("behind", lost)
    assert len(disks.rescued(klog, 1)) == lost
    plan = disks.plan(klog)
    assert (plan["losses"], [one["node"] for one in plan["copies"][0]["targets"]]) == ([], [1])
    assert disks.compared(klog, 0)["verdict"] == "same"


def test_only_broker_gets_its_beginning_back(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.lose(1, 0, 20)
    done = klog("metadata", "plan", *disks.paths, "--only-broker", "1", "--voter", "localhost:9093", "--apply")
    assert done.exit_code == 0, done.stderr
    assert disks.names(1) == disks.names(2)


@pytest.mark.parametrize(("keep", "losses"), [("1", [(0, 39, 40)]), ("2", [])])
def test_only_broker_names_what_only_other_disks_have(
    keep: str, losses: list[tuple[int, int, int]], klog: Run, tmp_path: Path
) -> None:
    """They are unchanged, and their broker does not return."""
    disks = Disks(tmp_path)
    disks.lose(1, 0, 20)
    words = ("--only-broker", "1", "--voter", "localhost:9093", "--keep", keep, "--output", "json")
    done = klog("metadata", "plan", *disks.paths, *words)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)["losses"]
    assert [(one["first_offset"], one["last_offset"], one["records"]) for one in found] == losses


def test_segments_that_are_old_by_their_files_alone_are_not(klog: Run, tmp_path: Path) -> None:
    """Without timestamps in the time index a broker takes the time of the file."""
    disks = Disks(tmp_path, {"retention.ms": "3600000"}, 5 * MINUTE)
    disks.lose(1, 0, 20)
    for node in (2, 3):
        for path in disks.place(node).glob("*.log"):
            os.utime(path, (1, 1))
    assert disks.lost(klog, 0) == {"1": 0, "2": 0, "3": 0}
