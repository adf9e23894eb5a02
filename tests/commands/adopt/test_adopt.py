"""The files that `klog adopt` puts in place: records, epochs, producers, transactions, checkpoints; and the undo."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.formats.producer_snapshot import read_snapshot
from klog.kernel import crc32c

from tests.commands.adopt.disks import (
    NOW,
    OTHER_TOPIC,
    adopted,
    doctor,
    epochs,
    fates,
    foreign,
    home,
    lines,
    records,
    refused,
    set_epochs,
)
from tests.conftest import FIXTURES, Ran, writable_copy
from tests.oracles.plain.encode import batch, marker
from tests.oracles.plain.shapes import some_records
from tests.support.power import tree

Klog = Callable[..., Ran]
UNIQUE = "0123456789abcdef0123456789abcdef"
TOPICS = ("dense", "empty", "gzip", "idempotent", "logappend", "lz4-broker", "plain", "snappy", "trimmed", "tx", "zstd")
NAMES = (
    *("dense-0", "empty-0", "gzip-0", "idempotent-0", "logappend-0", "lz4-broker-0", "plain-1", "plain-2", "snappy-1"),
    *("trimmed-0", "trimmed-1", "tx-0", "zstd-0"),
)


def test_a_whole_foreign_disk_comes_home(tmp_path: Path, klog: Klog) -> None:
    """Every codec, deleted beginnings, transactions: the same records at their offsets, for both kinds of reader."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    before = tree(source)
    globs = [word for topic in TOPICS for word in ("--topic", topic)]
    done = adopted(source, *globs, "--to", data, "--apply")
    assert tree(source) == before
    assert {f"{one['topic']}-{one['partition']}" for one in done["adopted"]} == {*NAMES}
    for one in done["adopted"]:
        name = f"{one['topic']}-{one['partition']}"
        for isolation in ("read_committed", "read_uncommitted"):
            level = ("--isolation", isolation)
            assert records(data / name, *level) == records(source / name, *level), name
        assert one["producers"] == "drop"
        ends = {lines(data, kind)[name] for kind in ("recovery-point", "replication")}
        assert ends == {one["log_end"]}
        assert lines(data, "log-start").get(name) == lines(source, "log-start").get(name)
        readable = [line for line in records(data / name) if line["offset"] >= one["log_start"]]
        assert one["records"] == len([line for line in readable if "control" not in line])
    assert klog("verify", "--deep", data, *globs).exit_code in (0, 4)
    found = doctor(data)
    assert found["starts"]
    assert found["loses"] == 0
    assert {fates(data)[name] for name in NAMES} == {"serves"}


@pytest.mark.parametrize("state", ["delete", "stray"])
def test_what_was_set_aside_comes_home_within_the_cluster(state: str, tmp_path: Path, klog: Klog) -> None:
    """Same cluster: its producers stay known, and not a byte of the log is another."""
    data = home(tmp_path / "data", "idempotent-0")
    aside = data / f"idempotent-0.{UNIQUE}-{state}"
    (data / "idempotent-0").rename(aside)
    done = adopted(aside, "--to", data, "--apply")
    (one,) = done["adopted"]
    assert (one["epochs"], one["producers"], one["replaces"]) == ("keep", "keep", None)
    theirs = {path.name: path.read_bytes() for path in aside.iterdir()}
    assert {path.name: path.read_bytes() for path in (data / "idempotent-0").iterdir()} == theirs
    aside.rename(tmp_path / "away")
    assert klog("doctor", data).exit_code == 0


def test_a_copy_between_log_dirs_needs_no_adoption_in_its_place(tmp_path: Path) -> None:
    """A broker makes it the partition, and does not start with both of them."""
    data = home(tmp_path / "data", "idempotent-0")
    aside = data / f"idempotent-0.{UNIQUE}-future"
    (data / "idempotent-0").rename(aside)
    (one,) = refused(aside, "--to", data, "--apply")
    assert (one["id"], one["next"]) == ("future-in-place", f"klog doctor {data}")
    assert not (data / "idempotent-0").exists()
    assert fates(data) == {aside.name: "promotes"}


def test_a_log_dir_brings_what_is_set_aside_in_it(tmp_path: Path) -> None:
    """Everything is -stray after the upgrade: one command, and those that are in use are no sources."""
    data = home(tmp_path / "data", "plain-1", "tx-0", "gzip-0")
    for name in ("plain-1", "tx-0"):
        (data / name).rename(data / f"{name}.{UNIQUE}-stray")
    done = adopted(data, "--to", data, "--apply")
    assert [f"{one['topic']}-{one['partition']}" for one in done["adopted"]] == ["plain-1", "tx-0"]
    assert fates(data)["plain-1"] == fates(data)["tx-0"] == "serves"


def test_the_old_copy_of_a_recreated_topic_is_adopted_in_place(tmp_path: Path, klog: Klog) -> None:
    """It lies where it is to be: its topic id changes, its producers are forgotten, and undo takes both back.

    The metadata log never had a topic of that id, so the producer ids are another metadata log's.
    """
    data = home(tmp_path / "data", "plain-1")
    identity = data / "plain-1/partition.metadata"
    identity.write_text(f"version: 0\ntopic_id: {OTHER_TOPIC}")
    assert fates(data)["plain-1"] == "strays"
    before = tree(data)
    done = adopted(data / "plain-1", "--to", data, "--apply")
    rolled = [f"plain-1/{113:020}.{kind}" for kind in ("log", "index", "timeindex")]
    files = [f"plain-1/{93:020}.snapshot", *rolled, "plain-1/partition.metadata"]
    assert [action["file"] for action in done["actions"]] == files
    assert fates(data)["plain-1"] == "serves"
    assert klog("undo", data.parent / "klog-backup" / done["id"], "--apply").exit_code == 0
    assert {**tree(data), ".lock": 0} == {**before, ".lock": 0}


def test_as_gives_another_name_and_number(tmp_path: Path) -> None:
    """A directory that a file system check left under a number, too."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    lost = tmp_path / "lost+found/#131073"
    lost.parent.mkdir()
    shutil.copytree(source / "plain-1", lost)
    done = adopted(lost, "--as", "plain-0", "--to", data, "--apply")
    assert done["adopted"][0]["partition"] == 0
    assert records(data / "plain-0") == records(source / "plain-1")


def test_messages_of_old_formats_are_adopted_as_they_are(tmp_path: Path) -> None:
    """v0 and v1 have no epochs; brokers of 4.x still serve them."""
    data = home(tmp_path / "data")
    for name in ("v0-none-0", "v0-gzip-0", "v1-lz4-0", "v1-snappy-0", "changing-0"):
        shutil.rmtree(data / "gzip-broker-0", ignore_errors=True)
        source = FIXTURES / "legacy" / name
        (one,) = adopted(source, "--as", "gzip-broker-0", "--to", data, "--apply")["adopted"]
        assert records(data / "gzip-broker-0") == records(source)
        assert one["records"] == len(records(source)), name
        assert fates(data)["gzip-broker-0"] == "serves"


def test_compacted_logs_keep_their_cleaner_offset(tmp_path: Path) -> None:
    """A cleaned part need not be cleaned again."""
    source, data = writable_copy(FIXTURES / "compaction/before", tmp_path / "other"), home(tmp_path / "data")
    (source / "cleaner-offset-checkpoint").write_text("0\n1\nkeys-none 0 100\n")
    adopted(source / "keys-none-0", "--as", "zstd-broker-0", "--to", data, "--apply")
    assert lines(data, "cleaner")["zstd-broker-0"] == 100
    assert records(data / "zstd-broker-0") == records(source / "keys-none-0")


# epochs


def test_epochs_above_the_clusters_are_rewritten(tmp_path: Path) -> None:
    """Consumers that committed them would wait for ever; no checksum covers them."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    set_epochs(source / "tx-0", 50)
    set_epochs(source / "plain-1", 2)
    found = adopted(source, "--topic", "tx", "--topic", "plain", "--to", data, "--apply")["adopted"]
    by_name = {f"{one['topic']}-{one['partition']}": one for one in found}
    assert (by_name["tx-0"]["epochs"], by_name["tx-0"]["epoch"]) == ("rewrite", 5)
    assert by_name["plain-1"]["epochs"] == "keep"
    assert epochs(data / "tx-0") == {5}
    assert epochs(data / "plain-1") == {2}
    assert (data / "tx-0/leader-epoch-checkpoint").read_text() == "0\n1\n5 0\n"
    assert records(data / "tx-0") == records(source / "tx-0")


def test_epochs_up_to_the_clusters_are_kept_with_their_history(tmp_path: Path) -> None:
    """The cluster's own epoch is no higher one: where each began stays known, to followers and consumers."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    set_epochs(source / "dense-0", 2, (5, 98))
    (one,) = adopted(source / "dense-0", "--to", data, "--apply")["adopted"]
    assert (one["epochs"], one["epoch"]) == ("keep", None)
    assert epochs(data / "dense-0") == {2, 5}
    assert (data / "dense-0/leader-epoch-checkpoint").read_text() == "0\n2\n2 0\n5 98\n"


def test_rewritten_epochs_begin_at_the_log_start(tmp_path: Path) -> None:
    """In front of it nothing is left that could be of an epoch; a broker moves the first entry there as well."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    set_epochs(source / "trimmed-0", 7, (50, 210))
    (one,) = adopted(source / "trimmed-0", "--to", data, "--apply")["adopted"]
    assert (one["epochs"], one["log_start"]) == ("rewrite", 137)
    assert epochs(data / "trimmed-0") == {5}
    assert (data / "trimmed-0/leader-epoch-checkpoint").read_text() == "0\n1\n5 137\n"
    assert fates(data)["trimmed-0"] == "serves"


def test_epochs_that_begin_at_either_end_of_the_log(tmp_path: Path) -> None:
    """One that begins at its start is that of its records; one at its end has none, and a broker drops it."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    set_epochs(source / "trimmed-0", 2)
    (source / "trimmed-0/leader-epoch-checkpoint").write_text("0\n2\n2 137\n4 360\n")
    (one,) = adopted(source / "trimmed-0", "--to", data, "--apply")["adopted"]
    assert (one["epochs"], one["log_start"], one["log_end"]) == ("keep", 137, 360)
    assert (data / "trimmed-0/leader-epoch-checkpoint").read_text() == "0\n1\n2 137\n"


@pytest.mark.parametrize(("option", "there"), [("keep", 50), ("rewrite", 5)])
def test_epochs_as_asked(option: str, there: int, tmp_path: Path) -> None:
    """--epochs decides against the default."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    set_epochs(source / "plain-1", 50 if option == "keep" else 2)
    adopted(source / "plain-1", "--epochs", option, "--to", data, "--apply")
    assert epochs(data / "plain-1") == {there}


# producers and transactions


def snapshots(partition: Path) -> dict[str, int]:
    """Return how many producers each snapshot has."""
    found = {path.name: read_snapshot(path.read_bytes(), crc32c) for path in partition.glob("*.snapshot")}
    assert all(one.problem is None for one in found.values())
    return {name.lstrip("0"): len(one.producers) for name, one in found.items()}


def test_foreign_producers_are_forgotten_behind_a_new_segment(tmp_path: Path) -> None:
    """Its snapshot has no producers: a recovery begins there, and never reads them from the log again."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    (one,) = adopted(source / "idempotent-0", "--to", data, "--apply")["adopted"]
    there = data / "idempotent-0"
    assert snapshots(there) == {f"{one['log_end']}.snapshot": 0}
    assert (there / f"{one['log_end']:020}.log").stat().st_size == 0
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    assert doctor(data)["loses"] == 0


def test_producers_as_asked(tmp_path: Path) -> None:
    """--producers keep for another cluster's, drop for one's own."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data", "plain-1")
    (one,) = adopted(source / "idempotent-0", "--producers", "keep", "--to", data, "--apply")["adopted"]
    assert one["producers"] == "keep"
    assert max(snapshots(data / "idempotent-0").values()) > 0
    aside = data / f"plain-1.{UNIQUE}-stray"
    (data / "plain-1").rename(aside)
    assert adopted(aside, "--producers", "drop", "--to", data, "--apply")["adopted"][0]["producers"] == "drop"


@pytest.mark.parametrize("producers", ["drop", "keep"])
def test_an_open_transaction_is_aborted_by_a_marker(producers: str, tmp_path: Path, klog: Klog) -> None:
    """Nothing else would end it: readers of committed data continue, and see none of it."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    words = (source / "tx-open-0", "--producers", producers, "--to", data, "--apply")
    (one,) = adopted(*words)["adopted"]
    assert [ended["first_offset"] for ended in one["ended"]] == [_open_from(source)]
    there = data / "tx-open-0"
    assert [line for line in records(there) if "control" not in line] == [
        line for line in records(source / "tx-open-0") if "control" not in line
    ]
    marker = next(line for line in reversed(records(there)))
    assert marker["control"] == "ABORT"
    assert marker["offset"] == one["log_end"] - 1
    undecided = {ended["producer_id"] for ended in one["ended"]}
    decided = [line["offset"] for line in records(source / "tx-open-0") if line.get("producer_id") not in undecided]
    seen = [line["offset"] for line in records(there, "--isolation", "read_committed")]
    assert seen == decided
    assert max(seen) > _open_from(source)
    assert klog("verify", "--deep", there).exit_code == 0
    assert fates(data)["tx-open-0"] == "serves"


def _open_from(source: Path) -> int:
    """Return where the first open transaction of the fixture begins, by the snapshot at its end."""
    (snapshot,) = (source / "tx-open-0").glob("*.snapshot")
    producers = read_snapshot(snapshot.read_bytes(), crc32c).producers
    return min(one.current_txn_first_offset for one in producers if one.current_txn_first_offset >= 0)


@pytest.mark.parametrize(("before", "wanted"), [(9, 9), (None, 0)])
def test_a_marker_has_the_epochs_that_a_broker_would_take(before: int | None, wanted: int, tmp_path: Path) -> None:
    """A coordinator epoch not below the producer's last one, whatever becomes of leader epochs, which it shares."""
    source, data = tmp_path / "other/tx-open-0", home(tmp_path / "data")
    source.mkdir(parents=True)
    producer, given = (7, 3, 0), some_records(0, 4)
    content = batch(given[:2], transactional=True, producer=producer, leader_epoch=50)
    if before is not None:
        end = {"producer_id": 7, "producer_epoch": 3, "coordinator_epoch": before, "leader_epoch": 50}
        content += marker(2, commit=True, timestamp=given[2].timestamp, **end)
        content += batch(given[3:], transactional=True, producer=(7, 3, 2), leader_epoch=50)
    (source / f"{0:020}.log").write_bytes(content)
    (one,) = adopted(source, "--to", data, "--apply")["adopted"]
    assert one["ended"] == [{"producer_id": 7, "first_offset": 0 if before is None else 3}]
    last = records(data / "tx-open-0")[-1]
    found = [last[name] for name in ("control", "producer_id", "producer_epoch", "coordinator_epoch")]
    assert found == ["ABORT", 7, 3, wanted]
    assert one["epochs"] == "rewrite"
    assert epochs(data / "tx-open-0") == {5}


# recovered on the way


def test_a_torn_source_is_recovered_in_the_copy_alone(tmp_path: Path) -> None:
    """Its log dir was not stopped cleanly: the end is cut, and the plan names the loss."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    log = max((source / "dense-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-30])
    (source / "dense-0/00000000000000000098.timeindex").unlink()
    before = tree(source)
    done = adopted(source / "dense-0", "--to", data, "--apply")
    assert tree(source) == before
    assert [loss["reason"] for loss in done["losses"]] == ["torn-tail"]
    assert done["losses"][0]["records"] > 0
    assert fates(data)["dense-0"] == "serves"
    assert doctor(data)["loses"] == 0


@pytest.mark.parametrize(("epochs_start", "lost"), [(3, [(3, 19, 17)]), (20, []), (0, [])])
def test_records_that_a_log_start_hides_are_a_loss(
    epochs_start: int, lost: list[tuple[int, int, int]], tmp_path: Path, klog: Klog
) -> None:
    """A broker that raises a log start raises the start of the leader epochs as well; rebuilt epochs prove nothing."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data", "gzip-0")
    shutil.rmtree(data / "plain-1", ignore_errors=True)
    (source / "log-start-offset-checkpoint").write_text("0\n1\nplain 1 20\n")
    (source / "plain-1/leader-epoch-checkpoint").write_text(f"0\n1\n0 {epochs_start}\n")
    words = (source / "plain-1", "--to", data)
    done = adopted(*words)
    assert [(one["first_offset"], one["last_offset"], one["records"]) for one in done["losses"]] == lost
    shown = klog("adopt", *words).stdout.decode()
    assert ("loses 17 records from offset 3 on, hidden by a log start" in shown) == bool(lost)


# the plan


def test_it_is_planned_saved_applied_and_taken_back(tmp_path: Path, klog: Klog) -> None:
    """As every plan: nothing before --apply, and undo restores every file, name and time."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data", "tx-0", "gzip-0")
    shutil.rmtree(data / "tx-0")
    before, plan = tree(data), tmp_path / "plan.json"
    assert adopted(source, "--topic", "tx", "--to", data)["applied"] is False
    assert tree(data) == before
    assert adopted(source, "--topic", "tx", "--to", data, "--save-plan", plan)["applied"] is False
    assert tree(data) == before
    assert klog("apply", plan).exit_code == 0
    assert records(data / "tx-0") == records(source / "tx-0")
    shutil.rmtree(source)  # its source may be deleted by now
    assert klog("undo", plan, "--apply").exit_code == 0
    assert {**tree(data), ".lock": 0} == {**before, ".lock": 0}


def test_replace_keeps_what_was_there_in_the_backup(tmp_path: Path, klog: Klog) -> None:
    """The lost records are named, and restored by undo."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data", "plain-1")
    before = tree(data)
    words = (source / "plain-2", "--as", "plain-1", "--replace", "--to", data, "--apply")
    done = adopted(*words)
    assert done["adopted"][0]["replaces"]["records"] == 113
    assert [loss["records"] for loss in done["losses"]] == [113]
    assert records(data / "plain-1") == records(source / "plain-2")
    assert klog("undo", data.parent / "klog-backup" / done["id"], "--apply").exit_code == 0
    assert {**tree(data), ".lock": 0} == {**before, ".lock": 0}


def test_what_is_replaced_goes_from_its_end(tmp_path: Path) -> None:
    """A stop at any point leaves a prefix of the old log: the last segment is deleted first, each log before its
    indexes."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data", "trimmed-0")
    words = (source / "plain-1", "--as", "trimmed-0", "--replace", "--to", data)
    gone = [one["file"] for one in adopted(*words)["actions"] if one["do"] == "remove"]
    kinds = ("log", "index", "timeindex")
    segments = [f"trimmed-0/{start:020}.{kind}" for start in (320, 210, 110, 0) for kind in kinds]
    assert gone == segments + [f"trimmed-0/{at:020}.snapshot" for at in (110, 210, 320, 360)]


def test_a_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    """Files that are in place with the same bytes are not written again."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    adopted(source / "tx-0", "--to", data, "--apply")
    after = tree(data)
    again = adopted(source / "tx-0", "--to", data, "--apply")
    assert again["actions"] == []
    assert again["adopted"][0]["done_before"] is True
    assert tree(data) == after


def test_log_start_lines_of_the_target_do_not_empty_what_comes(tmp_path: Path) -> None:
    """A log start beyond the new end would have all segments deleted."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    (data / "log-start-offset-checkpoint").write_text("0\n1\nplain 1 99999\n")
    adopted(source / "plain-1", "--to", data, "--apply")
    assert "plain-1" not in lines(data, "log-start")
    assert fates(data)["plain-1"] == "serves"


@pytest.mark.parametrize("name", [f"plain-1.{UNIQUE}-delete", f"plain-1.{UNIQUE}-stray", "131073"])
def test_checkpoints_say_nothing_of_what_is_not_in_use(name: str, tmp_path: Path) -> None:
    """They are about the directories that are in their places: another's log start would hide records."""
    data = home(tmp_path / "data", "plain-1")
    shutil.copytree(data / "plain-1", data / name)
    for kind in ("log-start", "cleaner"):
        (data / f"{kind}-offset-checkpoint").write_text("0\n2\nplain 1 100\nplain 2 90\n")
    (one,) = adopted(data / name, "--as", "plain-2", "--to", data, "--apply")["adopted"]
    assert (one["log_start"], one["records"]) == (0, 113)
    assert [lines(data, kind) for kind in ("log-start", "cleaner")] == [{"plain-1": 100}] * 2


def test_text_says_what_comes_and_what_is_next(tmp_path: Path, klog: Klog) -> None:
    """Names, offsets, changes on the way, and the command that makes them."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    done = klog("adopt", source / "tx-open-0", source / "__consumer_offsets-1", "--to", data, NOW)
    assert done.exit_code == 4
    text = done.stdout.decode()
    assert "tx-open-0  " in text
    assert "producers forgotten" in text
    assert "aborts the transaction of producer" in text
    assert "refused, internal-topic" in text
    assert "nothing has been changed; next:\n  klog adopt " in text
