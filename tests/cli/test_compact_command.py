"""`klog compact`: its output for operators and scripts, its exit codes, and its refusals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.change.plan import session
from klog_cli.views.compact import compact as command

from tests.change.plan.test_executor import end, other_process, said
from tests.conftest import FIXTURES, ROOT, Ran
from tests.oracles.broker_load import Loader
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record
from tests.partition.verify.partitions import flipped
from tests.support.metadata_logs import MetadataLog, config, topic
from tests.support.power import HastyDisk, same, tree

Klog = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("hasty")
NOW = "--now=2025-06-15T16:30:00Z"
PARTITIONS = ("grouping", "idempotent", "keys-lz4", "keys-none", "shapes", "tombstones-now", "tx-later")
COMPACT = ("cleanup.policy", "compact")
TOPIC = 2


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A log dir of seven partitions that were never compacted; no setting compacts them."""
    return Path(shutil.copytree(FIXTURES / "compaction/before", tmp_path / "data"))


def settle(folder: Path, *settings: tuple[str, str], names: tuple[str, ...] = PARTITIONS) -> None:
    """Write a metadata log into *folder* that gives the topics these settings."""
    kept = folder / "meta.properties"
    content = kept.read_bytes() if kept.exists() else None
    log = MetadataLog(folder)
    for number, name in enumerate(names, 1):
        log.add(topic(name, number), *(config(TOPIC, name, *setting) for setting in settings))
    if content is not None:
        kept.write_bytes(content)


@pytest.fixture
def log_dir(bare: Path) -> Path:
    """The same with a metadata log whose policy is compact."""
    settle(bare, COMPACT)
    return bare


def compacted(klog: Klog, *arguments: str | os.PathLike[str], code: int = 0) -> dict[str, Any]:
    """Return the result of `klog compact --output json`."""
    done = klog("compact", *arguments, NOW, "--output", "json")
    assert done.exit_code == code, done.stderr
    members = json.loads(done.stdout)
    assert isinstance(members, dict)
    return members


def results(members: dict[str, Any]) -> dict[str, str]:
    return {one["directory"]: one["result"] for one in members["partitions"]}


def content(folder: Path) -> dict[str, bytes]:
    """Return the partitions' files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent != folder and "__cluster" not in str(path)
    }


# output and effect


def test_a_compaction_is_shown_and_nothing_is_changed(klog: Klog, log_dir: Path) -> None:
    before = tree(log_dir)
    done = klog("compact", log_dir / "tx-later-0", NOW)
    assert done.exit_code == 0
    removed = "72 of 89 records removed: 32 superseded, 40 aborted or ended"
    assert done.stdout.decode().splitlines() == [
        "would compact 1 of 1 partition: 18.7 KiB → 5.4 KiB, 89 → 17 records",
        f"{log_dir}/tx-later-0  18.7 KiB → 5.4 KiB  ({removed})",
        "  before  [####################################|........]",
        "          # dirty 0–88, 15.4 KiB | . active 89–107, 3.2 KiB",
        "  after   [=====|........]",
        "nothing has been changed; next:",
        f"  klog compact {log_dir}/tx-later-0 {NOW} --apply",
    ]
    assert done.stderr == b""
    assert tree(log_dir) == before
    assert not (log_dir.parent / "klog-backup").exists()


def test_the_figures_of_the_map_are_shown_on_request(klog: Klog, log_dir: Path) -> None:
    """The reason, the rounds, the groups and the settings; a first look is not about the engine."""
    explained = klog("compact", log_dir / "tx-later-0", NOW, "--explain").stdout.decode()
    shown = re.sub(r"\d+ collisions? in \d+", "few collisions in 40", explained)  # the key is drawn at random
    _, _, reason, _, _, *figures, _, settings, _, _ = shown.splitlines()
    assert reason == "  dirty ratio 1, above 0.5"
    assert figures == [
        "  round 1: offsets 0–88; map: 8 keys in 5592405 slots (0.00014 %), few collisions in 40 probes",
        "    segments 0, 22, 44, 66: 15.4 KiB → 2.2 KiB, 89 → 17 records, 34 → 12 batches",
        "    removed: 32 superseded, 40 aborted or ended; markers: 9 of 9 retained",
    ]
    assert settings.startswith("  cleanup.policy compact (")


def test_what_is_compacted_stays_so_and_can_be_taken_back(klog: Klog, log_dir: Path) -> None:
    """The second run finds nothing to do, verify finds nothing wrong, and undo brings back the last byte."""
    before = tree(log_dir)
    done = klog("compact", log_dir, NOW, "--apply")
    assert done.exit_code == 0
    total, *_, backup, undo, command = done.stdout.decode().splitlines()
    assert total == "compacted 7 of 8 partitions: 118.1 KiB → 34.8 KiB, 1319 → 257 records"
    backup = backup.removeprefix("backup: ")
    assert (undo, command) == (
        "next: start the broker; to undo this before the broker has run:",
        f"  klog undo {backup}",
    )
    assert klog("verify", "--deep", log_dir, "--topic", "[!_]*").exit_code == 0
    assert klog("recover", log_dir, "--topic", "[!_]*").stdout == b"7 partitions: nothing to do\n"
    after = tree(log_dir)
    again = klog("compact", log_dir, NOW, "--apply")
    assert (again.exit_code, again.stdout, again.stderr) == (0, b"8 partitions: nothing to do\n", b"")
    assert tree(log_dir) == after
    assert klog("undo", backup, "--apply").exit_code == 0
    assert same(log_dir, before)


def test_all_of_it_once_more_changes_nothing(klog: Klog, log_dir: Path) -> None:
    """The checkpoint does not matter: the last values are left, and horizons are not set anew."""
    partitions = [log_dir / f"{name}-0" for name in PARTITIONS if name != "tx-later"]  # its markers get horizons
    assert klog("compact", *partitions, NOW, "--apply").exit_code == 0
    members = compacted(klog, *partitions, "--all", "--apply")
    assert set(results(members).values()) == {"to compact"}
    assert (members["actions"], members["applied"]) == ([], False)


def test_a_plan_is_saved_and_carried_out_later(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    before, file = tree(log_dir), tmp_path / "plan.json"
    done = klog("compact", log_dir, NOW, "--save-plan", file)
    assert done.exit_code == 0
    assert f"nothing has been changed; next:\n  klog apply {file}\n" in done.stdout.decode()
    assert tree(log_dir) == before
    assert klog("apply", file).exit_code == 0
    assert klog("compact", log_dir, NOW).stdout == b"8 partitions: nothing to do\n"
    assert klog("undo", file, "--apply").exit_code == 0
    assert same(log_dir, before)


def test_a_plan_holds_only_as_long_as_the_partition_is_what_it_was(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    """A broker that ran in between has appended: batches beyond the old log's end may be needed by the new one."""
    assert klog("compact", log_dir, NOW, "--save-plan", tmp_path / "plan.json").exit_code == 0
    with (log_dir / f"keys-none-0/{156:020}.log").open("ab") as log:
        log.write(b"\0")
    done = klog("apply", tmp_path / "plan.json")
    assert (done.exit_code, done.stderr.count(b"\n")) == (8, 1)
    assert "stale" in done.stderr.decode() or "changed" in done.stderr.decode()


def test_json_has_the_plan_and_what_came_of_each_partition(klog: Klog, log_dir: Path) -> None:
    """Scripts are written against these names."""
    members = compacted(klog, log_dir / "keys-lz4-0", "--apply")
    assert set(members) >= {
        "klog_plan", "id", "created", "command", "log_dirs", "actions", "backup",
        "applied", "to", "records_in", "records_out", "bytes_in", "bytes_out", "partitions",
    }  # fmt: skip
    figures = ("applied", "to", "records_in", "records_out", "bytes_in", "bytes_out")
    assert [members[name] for name in figures] == [True, None, 216, 50, 5873, 1440]
    (one,) = members["partitions"]
    assert set(one) == {
        "topic", "partition", "directory", "result", "reason", "log_start_offset", "log_end_offset",
        "first_dirty_offset", "first_dirty_because", "first_uncleanable_offset", "bounds", "dirty_ratio", "sections",
        "settings", "cleaner_offset", "rounds",
    }  # fmt: skip
    assert (one["topic"], one["partition"], one["result"], one["cleaner_offset"]) == ("keys-lz4", 0, "compacted", 216)
    assert one["sections"]["dirty"] == {"first_offset": 0, "end_offset": 216, "bytes": 5873}
    assert set(one["sections"]) == {"clean", "dirty", "uncleanable", "active"}
    assert one["bounds"][0] == {
        "offset": 216, "limit": "active segment", "reason": "the active segment, from offset 216"
    }  # fmt: skip
    (made,) = one["rounds"]
    assert set(made) == {
        "first_dirty", "next_dirty", "is_full", "keys", "slots", "probes", "collisions", "mapped_records",
        "mapped_bytes", "groups", "counts",
    }  # fmt: skip
    (group,) = made["groups"]
    assert (group["bases"], group["bytes_in"], group["bytes_out"], group["is_changed"]) == ([0, 72, 144], 5873, 1440, 1)
    assert set(group["counts"]) == {
        "batches_in", "batches_out", "records_in", "records_out", "superseded", "keyless", "discarded", "tombstones",
        "expired", "markers_in", "markers_out", "untouched",
    }  # fmt: skip
    nothing = compacted(klog, log_dir / "keys-lz4-0", "--apply")
    assert (nothing["id"], nothing["actions"], nothing["applied"]) == (None, [], False)
    assert results(nothing) == {"keys-lz4-0": "nothing to do"}


def test_the_cleaners_checkpoint_advances_and_keeps_what_it_says_of_others(klog: Klog, log_dir: Path) -> None:
    """Else the broker compacts all of it once more."""
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n2\nelsewhere 3 77\nshapes 0 5\n")
    assert (
        klog(
            "compact", log_dir / "shapes-0", log_dir / "keys-none-0", NOW, "--min-dirty-ratio", "0.1", "--apply"
        ).exit_code
        == 0
    )
    lines = (log_dir / "cleaner-offset-checkpoint").read_text().splitlines()
    assert sorted(lines[2:]) == ["elsewhere 3 77", "keys-none 0 156", "shapes 0 80"]


# several rounds, several partitions


def test_a_map_that_is_too_small_takes_rounds_and_leaves_the_same(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    """Memory affects the time, not the result."""
    small = compacted(klog, log_dir / "keys-none-0", "--map-memory", "480", "--to", tmp_path / "small")
    large = compacted(klog, log_dir / "keys-none-0", "--to", tmp_path / "large")
    rounds = small["partitions"][0]["rounds"]
    assert len(rounds) > 2
    assert [one["is_full"] for one in rounds] == [True] * (len(rounds) - 1) + [False]
    assert len(large["partitions"][0]["rounds"]) == 1
    assert [small[name] for name in ("records_in", "records_out")] == [156, 50]
    dumped = [klog("dump", tmp_path / name, "--output", "jsonl", "--topic", "keys-none") for name in ("small", "large")]
    assert len(dumped[0].stdout.splitlines()) == 50 + 64
    values = [[(row["offset"], row["key"], row["value"]) for row in map(json.loads, one.stdout.splitlines())]
              for one in dumped]  # fmt: skip
    assert values[0] == values[1]


def changes(members: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    """Return the actions with their files; transient ones are as old as the plan."""
    return [(one["do"], one["file"], one.get("after", {}).get("sha256")) for one in members["actions"]]


def test_partitions_at_a_time_do_not_change_the_plan(klog: Klog, log_dir: Path) -> None:
    one, two = (compacted(klog, log_dir, "--jobs", jobs) for jobs in ("1", "2"))
    assert [one["directory"] for one in one["partitions"]] == [two["directory"] for two in two["partitions"]]
    assert changes(one) == changes(two) != []
    for members in (one, two):
        for partition in members["partitions"]:
            for each in partition.get("rounds", ()):
                del each["probes"], each["collisions"]  # the map's key is drawn at random
    assert one["partitions"] == two["partitions"]


def test_topics_and_partitions_narrow_a_log_dir(klog: Klog, log_dir: Path) -> None:
    assert set(results(compacted(klog, log_dir, "--topic", "keys-*"))) == {"keys-lz4-0", "keys-none-0"}
    assert klog("compact", log_dir, "--topic", "key", NOW).exit_code == 16


# an estimate


def test_an_estimate_only_reckons(klog: Klog, log_dir: Path) -> None:
    """The estimate is made from the first pass alone, and near the result."""
    before = tree(log_dir)
    done = klog("compact", log_dir / "grouping-0", NOW, "--estimate")
    assert (done.exit_code, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == [
        "would gain about 21.1 KiB in 1 of 1 partition",
        f"{log_dir}/grouping-0  24.0 KiB → about 2.9 KiB  (27 keys in 400 dirty records)",
    ]
    assert tree(log_dir) == before
    members = compacted(klog, log_dir, "--estimate")
    assert members["actions"] == []
    assert set(results(members).values()) == {"estimated", "refused"}
    for one in members["partitions"]:
        if one["result"] == "estimated":
            made = compacted(klog, log_dir / one["directory"])
            assert set(one["estimate"]) == {"rounds", "keys", "records", "bytes_in", "bytes_out"}
            assert one["estimate"]["bytes_in"] == made["bytes_in"]
            assert made["bytes_out"] / 4 < one["estimate"]["bytes_out"] < made["bytes_out"] * 4


# settings, and their origins


def test_settings_are_said_with_their_origin(klog: Klog, bare: Path) -> None:
    settle(bare, COMPACT, ("internal.segment.bytes", "8000"), ("delete.retention.ms", "0"))
    members = compacted(klog, bare / "grouping-0", "--segment-size", "3000", "--min-dirty-ratio", "0.2")
    (one,) = members["partitions"]
    origins = {name: (setting["value"], setting["origin"]) for name, setting in one["settings"].items()}
    assert origins["cleanup.policy"] == (["compact"], "topic")
    assert origins["segment.bytes"] == (3000, "option")
    assert origins["delete.retention.ms"] == (0, "topic")
    assert origins["min.cleanable.dirty.ratio"] == (0.2, "option")
    assert origins["max.compaction.lag.ms"] == (2**63 - 1, "default")
    bases = [0, 52, 100, 148, 196, 244, 296, 348]
    assert [group["bases"] for group in one["rounds"][0]["groups"]] == [[base] for base in bases]
    (one,) = compacted(klog, bare / "grouping-0")["partitions"]
    assert one["settings"]["segment.bytes"] == {"value": 8000, "origin": "topic", "name": "internal.segment.bytes"}
    told = klog("compact", bare / "grouping-0", "--explain", NOW).stdout.decode()
    assert "cleanup.policy compact (topic), segment.bytes 8000 (topic), segment.index.bytes 10485760 (default)" in told
    assert "remote.storage.enable false (default)" in told


def test_a_real_brokers_metadata_tells_its_topics(klog: Klog) -> None:
    members = compacted(klog, FIXTURES / "modern", "--topic", "__consumer_offsets", "--explain")
    for one in members["partitions"]:
        assert one["settings"]["cleanup.policy"] == {"value": ["compact"], "origin": "topic", "name": "cleanup.policy"}
        assert one["settings"]["segment.bytes"]["value"] == 100 << 20
    assert {one["reason"] for one in members["partitions"]} == {
        "nothing is dirty below the active segment, from offset 0"
    }


def test_every_choice_is_explained(klog: Klog, log_dir: Path) -> None:
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nshapes 0 80\n")
    done = klog("compact", log_dir, "--topic", "shapes", "--topic", "__*", "--explain", NOW)
    lines = [line for line in done.stdout.decode().splitlines() if not line.startswith("  ")]
    assert lines == [
        "nothing compacted: 1 partition refused",
        f"{log_dir}/__cluster_metadata-0: not compacted: the metadata log has no keys",
        f"{log_dir}/shapes-0: not compacted: nothing is dirty below the active segment, from offset 80",
    ]


def test_settings_of_a_metadata_log_elsewhere(klog: Klog, bare: Path, tmp_path: Path) -> None:
    """Brokers apart from their controller, as most are, have no metadata log among their data."""
    settle(tmp_path / "controller", COMPACT, ("delete.retention.ms", "5"))
    of_bare = (bare / "meta.properties").read_bytes()
    (tmp_path / "controller/meta.properties").write_bytes(of_bare)
    members = compacted(klog, bare / "shapes-0", "--metadata", tmp_path / "controller")
    assert members["partitions"][0]["settings"]["delete.retention.ms"]["origin"] == "topic"
    assert results(members) == {"shapes-0": "to compact"}
    (tmp_path / "controller/meta.properties").write_text("version=1\ncluster.id=other\nnode.id=1\n")
    done = klog("compact", bare / "shapes-0", "--metadata", tmp_path / "controller")
    assert (done.exit_code, done.stdout) == (16, b"")
    assert "of cluster other" in done.stderr.decode()
    for no_metadata in (bare, bare / "shapes-0"):
        done = klog("compact", bare / "shapes-0", "--metadata", no_metadata)
        assert (done.exit_code, done.stderr.count(b"\n")) == (16, 1)


def test_of_log_dirs_of_two_clusters_each_has_its_own_settings(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    """The same topic's name may be another topic's there."""
    other = Path(shutil.copytree(FIXTURES / "compaction/before", tmp_path / "other"))
    same_cluster = compacted(klog, log_dir, other, "--topic", "shapes")
    assert [one["result"] for one in same_cluster["partitions"]] == ["to compact", "to compact"]
    (other / "meta.properties").write_text("version=1\ncluster.id=other\nnode.id=1\n")
    done = klog("compact", log_dir, other, "--topic", "shapes", NOW, "--output", "json")
    assert done.exit_code == 16
    assert [one["result"] for one in json.loads(done.stdout)["partitions"]] == ["to compact", "refused"]


# refusals


def test_a_policy_that_nobody_knows_is_refused_where_it_is_named(klog: Klog, bare: Path) -> None:
    """A log whose records have no meaning by key would lose most of them."""
    done = klog("compact", bare / "shapes-0", NOW)
    assert (done.exit_code, done.stdout) == (16, b"nothing compacted: 1 partition refused\n")
    assert done.stderr.decode() == (
        f"klog: {bare}/shapes-0: the topic's cleanup.policy is unknown here; --metadata DIR names the log dir with"
        " the metadata log; --policy compact if you know it\n"
    )
    done = klog("compact", bare, NOW)
    assert (done.exit_code, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [
        "nothing compacted: 7 partitions skipped: their cleanup.policy is unknown here",
        "to take the settings of topics from the log dir with the metadata log:",
        f"  klog compact {bare} {NOW} --metadata LOG_DIR",
        "to compact a topic of which you know that it may be:",
        f"  klog compact {bare} {NOW} --topic grouping --policy compact",
    ]
    assert results(compacted(klog, bare, "--topic", "grouping", "--policy", "compact")) == {"grouping-0": "to compact"}
    assert b"7 partitions skipped" in klog("compact", bare, NOW, "--output", "json").stderr
    assert results(compacted(klog, bare / "shapes-0", "--policy", "compact")) == {"shapes-0": "to compact"}


def test_a_log_dir_with_topics_of_another_policy_is_no_reason_for_words(klog: Klog, bare: Path) -> None:
    """Most topics are not compacted."""
    settle(bare, ("cleanup.policy", "delete"), names=PARTITIONS[:4])
    done = klog("compact", bare, NOW)
    assert (done.exit_code, done.stdout, done.stderr) == (0, b"8 partitions: nothing to do\n", b"")
    done = klog("compact", bare / "grouping-0", NOW)
    assert done.exit_code == 16
    assert "cleanup.policy=delete; --policy compact compacts it anyway, once" in done.stderr.decode()


def test_what_is_deleted_from_as_well_is_compacted(klog: Klog, bare: Path) -> None:
    settle(bare, ("cleanup.policy", "compact,delete"))
    members = compacted(klog, bare / "shapes-0", "--apply")
    assert results(members) == {"shapes-0": "compacted"}
    assert members["partitions"][0]["settings"]["cleanup.policy"]["value"] == ["compact", "delete"]


def flip(log_dir: Path) -> None:
    path = log_dir / f"grouping-0/{100:020}.log"
    path.write_bytes(flipped(1000)(bytearray(path.read_bytes())))


def overlap(log_dir: Path) -> None:
    (log_dir / f"grouping-0/{100:020}.log").rename(log_dir / f"grouping-0/{90:020}.log")
    (log_dir / f"grouping-0/{100:020}.index").unlink()


def leave_over(log_dir: Path) -> None:
    (log_dir / f"grouping-0/{0:020}.log.cleaned").touch()


@pytest.mark.parametrize(
    ("damage", "what"),
    [(flip, "the checksum does not match"), (overlap, ""), (leave_over, "an interrupted operation")],
)
@pytest.mark.parametrize("how", [(), ("--apply",), ("--estimate",)], ids=["shown", "applied", "estimated"])
def test_damage_comes_first(
    klog: Klog, log_dir: Path, damage: Callable[[Path], None], what: str, how: tuple[str, ...]
) -> None:
    """The output has new checksums: damage would look sound ever after.  Other partitions are compacted."""
    damage(log_dir)
    before = tree(log_dir / "grouping-0")
    done = klog("compact", log_dir, NOW, *how)
    assert done.exit_code == 4
    (line,) = [line for line in done.stderr.decode().splitlines() if "grouping" in line and "next" not in line]
    assert what in line
    assert line.endswith(f"first: klog recover {log_dir}/grouping-0")
    assert tree(log_dir / "grouping-0") == before
    assert "6 of 8 partitions" in done.stdout.decode()


def test_a_torn_tail_of_the_active_segment_is_the_brokers_affair(klog: Klog, log_dir: Path) -> None:
    """After a crash there is one, and it is not compacted."""
    path = log_dir / f"shapes-0/{80:020}.log"
    path.write_bytes(path.read_bytes()[:-10])
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert results(compacted(klog, log_dir / "shapes-0", "--apply")) == {"shapes-0": "compacted"}


@pytest.mark.parametrize(
    ("settings", "partition", "what"),
    [
        ((COMPACT, ("remote.storage.enable", "true")), "shapes-0", "a part of the log is in remote storage"),
        ((COMPACT,), "__cluster_metadata-0", "the metadata log has no keys"),
        ((COMPACT,), "shapes-0.f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff-stray", "this directory is not in use (-stray)"),
    ],
    ids=["tiered", "metadata log", "stray"],
)
def test_what_is_not_klogs_to_compact_is_8_when_named_and_passed_over_else(
    klog: Klog, bare: Path, settings: tuple[tuple[str, str], ...], partition: str, what: str
) -> None:
    settle(bare, *settings)
    if not (bare / partition).exists():
        (bare / "shapes-0").rename(bare / partition)
    before = tree(bare / partition)
    done = klog("compact", bare / partition, NOW, "--apply")
    assert (done.exit_code, done.stdout) == (8, b"nothing compacted: 1 partition refused\n")
    assert what in done.stderr.decode()
    assert klog("compact", bare, NOW, "--apply", "--quiet").exit_code == 0
    assert tree(bare / partition) == before


def test_a_running_broker_is_8(klog: Klog, log_dir: Path) -> None:
    process = other_process(log_dir / ".lock")
    assert said(process) == b"held"
    before = tree(log_dir)
    done = klog("compact", log_dir, NOW, "--apply")
    assert (done.exit_code, done.stdout) == (8, b"")
    assert f"a broker is running on {log_dir} (pid {process.pid})" in done.stderr.decode()
    planned = klog("compact", log_dir, NOW)
    assert planned.exit_code == 0
    assert "what is planned now may be stale" in planned.stderr.decode()
    assert tree(log_dir) == before
    end(process)


class FullDisk(HastyDisk):
    def free_bytes(self, path: str) -> int:
        return 1000


@pytest.mark.parametrize("how", ["--apply", "--save-plan", "--to"])
def test_too_little_room_is_8_before_anything_is_written(
    klog: Klog, log_dir: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pass announces its size."""
    for module in (session, command):
        monkeypatch.setattr(module, "Disk", FullDisk)
    before = tree(log_dir)
    where = [] if how == "--apply" else [tmp_path / "there"]
    done = klog("compact", log_dir / "grouping-0", NOW, how, *where)
    assert (done.exit_code, done.stdout, done.stderr.count(b"\n")) == (8, b"", 1)
    assert "about 1563 bytes will be written, 1000 are free" in done.stderr.decode()
    assert same(log_dir, before)
    assert sorted(name for name in os.listdir(tmp_path) if name != "state") == ["data"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--apply", "--save-plan", "x"),
        ("--apply", "--to", "x"),
        ("--to", "x", "--estimate"),
        ("--policy", "delete"),
        ("--kafka-version", "9"),
        ("--min-dirty-ratio", "2"),
        ("--segment-size", "lots"),
        ("--map-memory", "1G", "--now", "soon"),
        ("--partition", "7"),
    ],
)
def test_what_makes_no_sense_is_16(klog: Klog, log_dir: Path, arguments: tuple[str, ...]) -> None:
    before = tree(log_dir.parent)
    done = klog("compact", log_dir, *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count(b"\n")) == (16, b"", 1)
    assert tree(log_dir.parent) == before


def test_nothing_named_is_16(klog: Klog, log_dir: Path) -> None:
    for arguments in ((), (log_dir / "shapes-1",), (log_dir / f"shapes-0/{0:020}.log",)):
        assert klog("compact", *arguments).exit_code == 16


# copies


def test_a_copy_is_what_in_place_would_have_become(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    before, to = tree(log_dir), tmp_path / "new/copy"
    members = compacted(klog, log_dir, "--to", to)
    assert (members["to"], members["applied"], members["actions"]) == (str(to), False, [])
    assert {result for name, result in results(members).items() if name[0] != "_"} == {"compacted"}
    assert tree(log_dir) == before
    assert klog("verify", "--deep", to).exit_code == 0
    files = {"cleaner", "recovery-point", "replication"}
    expected = {
        *(f"{name}-0" for name in PARTITIONS),
        "meta.properties",
        *(f"{one}-offset-checkpoint" for one in files),
    }
    assert set(os.listdir(to)) == expected
    assert klog("compact", log_dir, NOW, "--apply").exit_code == 0
    assert content(to) == content(log_dir)
    lines = [(folder / "cleaner-offset-checkpoint").read_text().splitlines() for folder in (to, log_dir)]
    assert sorted(lines[0]) == sorted(lines[1])


def test_a_copy_has_what_is_not_compacted_as_it_is(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    """Partitions that may be compacted are copied, due or not; refused ones are left out."""
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nshapes 0 80\n")
    original = content(log_dir)
    compacted(klog, log_dir, "--to", tmp_path / "copy")
    copied = content(tmp_path / "copy")
    of_shapes = {name: data for name, data in original.items() if name.startswith("shapes")}
    assert {name: data for name, data in copied.items() if name.startswith("shapes")} == of_shapes
    assert "shapes 0 80" in (tmp_path / "copy/cleaner-offset-checkpoint").read_text()


def test_a_copy_of_two_log_dirs_is_nobodys(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    """Neither of the two directory ids would be right."""
    other = tmp_path / "other"
    other.mkdir()
    shutil.copyfile(log_dir / "meta.properties", other / "meta.properties")
    (log_dir / "shapes-0").rename(other / "shapes-0")
    assert klog("compact", log_dir, other, "--to", tmp_path / "copy", NOW).exit_code == 0
    assert not (tmp_path / "copy/meta.properties").exists()
    assert (tmp_path / "copy/shapes-0").is_dir()


def test_a_copy_goes_only_where_nothing_is(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "file").touch()
    for to in (there, there / "file"):
        done = klog("compact", log_dir, "--to", to, NOW)
        assert (done.exit_code, done.stdout) == (16, b"")
        assert "exists, and is not an empty directory" in done.stderr.decode()
    (there / "file").unlink()
    assert klog("compact", log_dir, "--to", there, NOW).exit_code == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_a_copy_that_fails_leaves_nothing(
    klog: Klog, log_dir: Path, tmp_path: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(HastyDisk):
        def copy(self, *arguments: Any) -> None:
            raise OSError(5, "Input/output error", arguments[0])

    monkeypatch.setattr(command, "Disk", Failing)
    to = tmp_path / "new/copy"
    if is_there:
        to.mkdir(parents=True)
    done = klog("compact", log_dir, "--to", to, NOW)
    assert (done.exit_code, done.stderr.count(b"\n")) == (8, 1)
    assert to.exists() is is_there
    assert not is_there or os.listdir(to) == []
    assert (tmp_path / "new").exists() is is_there


@pytest.mark.kafka
def test_a_broker_takes_a_copy_for_its_own(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    """It loads every partition and changes nothing but its own housekeeping."""
    assert klog("compact", log_dir, "--to", tmp_path / "copy", NOW).exit_code == 0
    before = content(tmp_path / "copy")
    with Loader() as loader:
        outcome = loader.load(tmp_path / "copy", now_ms=1_750_005_000_000)
    assert outcome.ok, outcome
    after = content(tmp_path / "copy")
    assert {name: data for name, data in after.items() if not name.endswith(".snapshot")} == {
        name: data for name, data in before.items() if not name.endswith(".snapshot")
    }


# manners


@pytest.mark.parametrize("how", [(), ("--estimate",), ("--explain",), ("--output", "json")])
def test_looking_writes_nothing_anywhere(klog: Klog, log_dir: Path, how: tuple[str, ...]) -> None:
    """Not even for a moment, which the times of directories would show: the disk may be mounted read-only."""
    before = tree(log_dir.parent)
    assert klog("compact", log_dir, NOW, *how).exit_code == 0
    assert tree(log_dir.parent) == before


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """Two partitions that take many seconds: their content is two hundred times as large as their bytes."""
    data = tmp_path / "data"
    settle(data, COMPACT, names=("slow",))
    # Keys repeat, so that few batches are made; the base offset, which comes first, has no part in the checksum.
    batches = [encode.batch([Record(0, 1_750_000_000_000, b"%d" % i, bytes(400_000))], codec="gzip") for i in range(80)]
    log = b"".join(struct.pack(">q", offset) + batches[offset % 80][8:] for offset in range(8000))
    for number in (0, 1):
        partition = data / f"slow-{number}"
        partition.mkdir()
        for base, content in ((0, log), (8000, b"")):
            (partition / f"{base:020}.log").write_bytes(content)
            (partition / f"{base:020}.index").touch()
            (partition / f"{base:020}.timeindex").touch()
    return data


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("how", ["--apply", "--to"])
def test_an_interrupt_is_32_and_leaves_nothing(slow: Path, tmp_path: Path, jobs: str, how: str) -> None:
    before = tree(slow)
    where = [tmp_path / "copy"] if how == "--to" else []
    process = subprocess.Popen(
        [sys.executable, "-m", "klog_cli.app", "compact", slow, how, *where, "--jobs", jobs, NOW],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'core'}:{ROOT / 'cli'}"},
    )
    begun = tmp_path / ".copy.klog-write" if where else slow / ".lock"
    while not begun.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    since = time.monotonic()
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (32, b"", b"klog: cancelled\n")
    assert time.monotonic() - since < 30  # alone on a machine it is a tenth
    assert same(slow, before)
    assert sorted(name for name in os.listdir(tmp_path) if name != "state") == ["data"]
