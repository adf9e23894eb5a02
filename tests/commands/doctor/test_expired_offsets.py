"""`klog doctor` if committed offsets expired while the broker stood still."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.support.group_records import DAY_MS, Pair, append, classic, commit, consumer
from tests.support.metadata_logs import uuid
from tests.support.rolled_back import NOW_MS, metadata, partition

Klog = Callable[..., Ran]
TOPIC = "__consumer_offsets"
OLD, YOUNG = NOW_MS - 8 * DAY_MS, NOW_MS - 6 * DAY_MS
IDLE = [commit("idle", OLD), commit("idle", OLD, 1), classic("idle", OLD)]


def disk(folder: Path, pairs: Sequence[Pair], replicas: tuple[int, ...] = (1,)) -> Path:
    """Write a log dir of node 1 whose only partition is the coordinators'."""
    metadata(folder, leader_epoch=0, next_producer_id=None, name=TOPIC, replicas=replicas)
    append(partition(folder, [], [(0, 0)], name=TOPIC), pairs, 0, OLD)
    return folder


def ask(klog: Klog, log_dir: Path, *words: object, code: int = 0) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the groups whose offsets are removed, and the notes about them."""
    done = klog("doctor", "--output", "json", log_dir, *words)
    assert done.exit_code == code, done.stdout
    found = json.loads(done.stdout)
    return found["offsets"], [one["message"] for one in found["notes"] if one["id"] == "offsets-due"]


def test_offsets_of_a_group_that_has_been_empty_for_too_long(klog: Klog, tmp_path: Path) -> None:
    """No record is lost: it is a note, with the setting that keeps them."""
    data = disk(tmp_path / "data", [*IDLE, commit("young", YOUNG), classic("young", YOUNG)])
    groups, (note,) = ask(klog, data)
    assert groups == [
        {
            "group": "idle", "type": "classic", "partition": 0, "offsets": 2, "since": OLD, "has_members": False,
            "has_replicas": False,
        }
    ]  # fmt: skip
    assert note.startswith("10 minutes after the start, the coordinators remove 2 committed offsets of 1 group (idle)")
    assert "offsets.retention.minutes=10080, Kafka's default (server.properties is not known)" in note
    assert note.endswith("first: set offsets.retention.minutes=2147483647 in server.properties")
    text = klog("doctor", data).stdout.decode()
    assert text.startswith("STARTS, LOSES NOTHING\n  Coordinators remove 2 expired offsets of 1 group (offsets-due).\n")
    assert "  To keep them, set offsets.retention.minutes=2147483647 in server.properties.\n" in text
    assert "Fix" not in text
    assert f"  {note} (offsets-due)\n" in klog("doctor", "--all", data).stdout.decode()


@pytest.mark.parametrize(
    "pairs",
    [
        [commit("g", YOUNG)],
        [commit("g", OLD), classic("g", YOUNG)],
        [commit("g", OLD), classic("g", OLD, members=1)],
        [commit("g", OLD), classic("g", OLD, "connect", members=1)],
        [commit("g", YOUNG), classic("g", OLD, "")],
        [commit("g", OLD, expires_ms=NOW_MS + DAY_MS)],
        [commit("g", OLD), commit("g", YOUNG)],
        [commit("g", YOUNG), *consumer("g", uuid(1), member=False)],
        [classic("g", OLD)],
    ],
    ids=["young", "empty not for long", "member", "worker", "simple", "own time", "again", "new", "no offset"],
)
def test_offsets_that_stay_have_no_note(pairs: list[Pair], klog: Klog, tmp_path: Path) -> None:
    data = disk(tmp_path / "data", pairs)
    assert ask(klog, data) == ([], [])
    assert b"offsets-due" not in klog("doctor", data).stdout


@pytest.mark.parametrize(("minutes", "due"), [(10080, 1), (8 * 1440 + 600, 0), (60, 1)])
def test_the_brokers_file_has_the_setting(minutes: int, due: int, klog: Klog, tmp_path: Path) -> None:
    data = disk(tmp_path / "data", IDLE)
    file = tmp_path / "server.properties"
    lines = (f"log.dirs={data}", f"offsets.retention.minutes={minutes}", "offsets.retention.check.interval.ms=90000")
    file.write_text("\n".join(lines))
    groups, notes = ask(klog, data, "--server-properties", file)
    assert len(groups) == due
    for note in notes:
        assert note.startswith("1.5 minutes after the start, ")
        assert f"by offsets.retention.minutes={minutes}, of server.properties" in note


def test_members_of_the_new_protocols_keep_them_if_they_return(klog: Klog, tmp_path: Path) -> None:
    gone = [commit("gone", OLD), *consumer("gone", uuid(1), member=False)]
    data = disk(tmp_path / "data", [*gone, commit("here", OLD), *consumer("here", uuid(1), member=True)])
    groups, (note,) = ask(klog, data)
    assert [(one["group"], one["has_members"]) for one in groups] == [("gone", False), ("here", True)]
    said = "1 group (gone), and 1 committed offset of 1 group (here) if no member in the log is back by then"
    assert said in note
    assert "Coordinators remove up to 2 expired offsets of 2 groups" in klog("doctor", data).stdout.decode()


def test_another_node_may_have_a_newer_log(klog: Klog, tmp_path: Path) -> None:
    """While this node was away, the groups have gone on there."""
    data = disk(tmp_path / "data", IDLE, (1, 2))
    groups, (note,) = ask(klog, data)
    assert groups[0]["has_replicas"]
    assert "2 committed offsets of 1 group (idle) unless another node has a newer log of it, by" in note
    assert f"  {note} (offsets-due)\n" in klog("doctor", data).stdout.decode()


def test_a_time_of_the_clients_own(klog: Klog, tmp_path: Path) -> None:
    """No setting of the broker keeps those: the note has the command that saves them."""
    data = disk(tmp_path / "data", [commit("g", NOW_MS, expires_ms=NOW_MS - 1), *IDLE])
    groups, (aged, ended) = ask(klog, data)
    assert [(one["group"], one["since"]) for one in groups] == [("g", None), ("idle", OLD)]
    assert "2 committed offsets of 1 group (idle)" in aged
    assert "1 committed offset of 1 group (g), whose clients have set that time" in ended
    assert ended.endswith("first: klog groups LOG_DIR --output reset-offsets --to offsets.csv")


@pytest.mark.parametrize("case", ["lost", "aside"])
def test_a_log_dir_without_the_coordinators_log(case: str, klog: Klog, tmp_path: Path) -> None:
    """No coordinator reads it, and there is more to say than this."""
    data = disk(tmp_path / "data", IDLE)
    if case == "lost":
        shutil.rmtree(data / f"{TOPIC}-0")
    else:
        (data / f"{TOPIC}-0" / "partition.metadata").unlink()
    assert ask(klog, data, code=0 if case == "lost" else 4) == ([], [])


def test_large_logs_are_read_when_asked(klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer says that they were not."""
    monkeypatch.setattr("klog.commands.doctor.expired_offsets._MOST_BYTES", 100)
    data = disk(tmp_path / "data", IDLE)
    assert ask(klog, data) == ([], [])
    text = klog("doctor", data).stdout
    assert b"the committed offsets of 1 partition of __consumer_offsets were not read: --records reads all" in text
    groups, _ = ask(klog, data, "--records")
    assert [one["group"] for one in groups] == ["idle"]
    assert b"not read" not in klog("doctor", "--records", data).stdout
