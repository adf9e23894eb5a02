"""`klog remote ls`: for real brokers, the offsets that their clients were told, and the segments of a replay."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CORPORA, Ran, writable_copy
from tests.support import tiers
from tests.support.metadata_logs import MetadataLog, config, topic, uuid, value
from tests.support.s3_server import s3_server, upload, use
from tests.support.tiers import IMAGES, Situation, situation

Klog = Callable[..., Ran]
KEYS = ["--remote-keys", f"key1={CORPORA / 'tiered/aiven-encrypted/private.pem'}"]


def document(ran: Ran, *codes: int) -> Any:
    assert ran.exit_code in (codes or (0,)), ran.stderr.decode()
    return json.loads(ran.stdout)


def listed(klog: Klog, found: Situation, *more: object, codes: tuple[int, ...] = (0, 4)) -> dict[str, Any]:
    """The partitions by name, with their segments."""
    shown = document(klog("remote", "ls", *found.data, "--segments", "-o", "json", *more), *codes)
    return {f"{one['topic']}-{one['partition']}": one for one in shown["partitions"]}


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), IMAGES)
def test_partitions_are_as_clients_were_told(klog: Klog, image: Callable[[str], Path], name: str, moment: str) -> None:
    """Log start, local start, remote end and log end of every situation; its segments and their states."""
    found = situation(image, name, moment)
    rows = listed(klog, found)
    for partition, answers in found.clients.items():
        told = answers["offsets"]
        if partition not in rows:
            assert told["latest_tiered"] == -1
            continue
        row = rows[partition]
        assert (row["log_start_offset"], row["log_end_offset"]) == (told["earliest"], told["latest"])
        assert max(row["local_log_start_offset"], row["log_start_offset"]) == told["earliest_local"]
        if partition != "stopped-0":  # with remote.log.copy.disable a broker does not know it after a restart
            assert (-1 if row["remote_end_offset"] is None else row["remote_end_offset"]) == told["latest_tiered"]
        assert row["holes"] == []
    entries = found.truth["segments"][moment]
    ours = [
        (f"{one['topic']}-{one['partition']}", each["segment_id"], each["state"])
        for one in rows.values()
        for each in one["segment_list"]
    ]
    assert sorted(ours) == sorted(
        (f"{one['topic']}-{one['partition']}", one["segment_id"], one["state"]) for one in entries
    )
    deleted = {name.partition(" ")[0]: count for name, count in found.truth["deleted_segments"][moment].items()}
    assert {name: row["deleted"] for name, row in rows.items() if row["deleted"]} == {
        name: count for name, count in deleted.items() if count
    }


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), IMAGES)
def test_a_tier_agrees_with_its_metadata(klog: Klog, image: Callable[[str], Path], name: str, moment: str) -> None:
    """Clean situations are whole; each damage of a needed object, and each object without an entry, is seen."""
    found = situation(image, name, moment)
    rows = listed(klog, found, "--remote", found.tier)
    verdicts = {name: row["verdict"] for name, row in rows.items()}
    if name == "damaged":
        kinds = ("log-missing", "log-cut", "log-cut-clean", "log-empty", "log-grown", "index-missing")
        kinds += ("timeindex-missing", "all-missing", "first-missing")
        assert {f"d-{kind}-0" for kind in kinds} == {name for name, verdict in verdicts.items() if verdict == "damaged"}
        assert verdicts["d-orphan-0"] == "orphans"
    elif name == "orphans":
        assert verdicts == {"fine-0": "whole", "short-0": "orphans", "gone-0": "orphans"}
        assert [rows[name]["orphans"] for name in ("short-0", "gone-0")] == [1, 10]
    else:
        assert set(verdicts.values()) <= {"whole", "local-only"}


@pytest.mark.corpora
@pytest.mark.parametrize(
    "name",
    ["house", "aiven-plain", "aiven-zstd", "aiven-encrypted", "unclean", "unclean-tail", "lost-cluster"],
)
def test_a_tier_alone_shows_the_same_offsets(klog: Klog, image: Callable[[str], Path], name: str) -> None:
    """The cluster is gone; names, logs and manifests are left."""
    found = situation(image, name)
    both = listed(klog, found, "--remote", found.tier)
    shown = document(klog("remote", "ls", "--remote", found.tier, "--segments", "-o", "json"), 0)
    assert shown["metadata"] is None
    for row in shown["partitions"]:
        known = both[f"{row['topic']}-{row['partition']}"]
        assert row["verdict"] == "remote-only"
        assert (row["remote_end_offset"], row["remote_bytes"]) == (known["remote_end_offset"], known["remote_bytes"])
        assert row["remote_start_offset"] <= known["remote_start_offset"]
        facts = ("segment_id", "start_offset", "end_offset", "bytes", "epochs", "role", "objects")
        ours, theirs = ([[one[fact] for fact in facts] for one in each["segment_list"]] for each in (row, known))
        assert ours == theirs
        assert {one["state"] for one in row["segment_list"]} == {None}


@pytest.mark.corpora
def test_roles_of_two_lineages(klog: Klog, image: Callable[[str], Path]) -> None:
    """The dead leader's segments are dead; the one that is the only source of live offsets serves, with a dead tail."""
    row = listed(klog, situation(image, "unclean-tail"))["split-0"]
    assert Counter(one["role"] for one in row["segment_list"]) == {"serves": 9, "dead": 2}
    assert [one["start_offset"] for one in row["segment_list"] if one["role"] == "dead"] == [61, 89]
    stuck = listed(klog, situation(image, "stuck"))["stuck-0"]
    assert [one["role"] for one in stuck["segment_list"]] == ["deleting", "below-start", "below-start", *["serves"] * 5]
    half = listed(klog, situation(image, "interrupted", "after"))["fails-0"]
    assert Counter(one["role"] for one in half["segment_list"]) == {"serves": 3, "unfinished": 1}


@pytest.mark.corpora
def test_at_a_time_it_is_the_state_of_then(klog: Klog, image: Callable[[str], Path], tmp_path: Path) -> None:
    """Before the first record there is nothing; with the last one everything."""
    found = situation(image, "orphans")
    times = sorted({json.loads(line)["timestamp"] for line in records(klog, found)})
    seen = []
    for time in (times[0] - 1, *times):
        ran = klog("remote", "ls", *found.data, "-t", "gone", "-o", "json", "--at-time", str(time))
        rows = json.loads(ran.stdout)["partitions"] if ran.exit_code == 0 else []
        seen.append((rows[0]["segments"], rows[0]["deleted"]) if rows else (0, 0))
    assert seen[0] == (0, 0)
    assert seen[-1] == (0, 10)
    assert max(segments for segments, _ in seen) == 10
    assert [deleted for _, deleted in seen] == sorted(deleted for _, deleted in seen)


def records(klog: Klog, found: Situation) -> list[str]:
    dumped = klog("dump", *found.data, "-t", "__remote_log_metadata", "-o", "jsonl")
    return dumped.stdout.decode().splitlines()


# the fixture


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """The log dir and the tier of the fixture."""
    return tiers.unpack(tmp_path / "tiered")


def test_forms(klog: Klog, place: tuple[Path, Path]) -> None:
    """All have the same rows; jsonl and csv a line for each."""
    data, tier = place
    words = ("remote", "ls", data, "--remote", tier)
    shown = document(klog(*words, "-o", "json"), 4)
    assert shown["tier"] == {"uri": str(tier), "layout": "local", "objects": 90, "bytes": 35868}
    assert shown["metadata"] == {"partitions": 3, "events": 58, "dropped": 0}
    lines = [json.loads(line) for line in klog(*words, "-o", "jsonl").stdout.splitlines()]
    assert lines == shown["partitions"]
    rows = list(csv.DictReader(io.StringIO(klog(*words, "-o", "csv").stdout.decode())))
    assert [(row["topic"], row["verdict"], row["states"]) for row in rows] == [
        *(
            ("fine", "whole", "COPY_SEGMENT_FINISHED:6"),
            ("gone", "orphans", ""),
            ("short", "orphans", "COPY_SEGMENT_FINISHED:1"),
        )
    ]
    segments = list(csv.DictReader(io.StringIO(klog(*words, "--segments", "-o", "csv").stdout.decode())))
    assert len(segments) == 18
    text = klog(*words).stdout.decode().splitlines()
    assert text[0].split() == [
        "partition",
        "log",
        "start",
        "remote",
        "local",
        "from",
        "log",
        "end",
        "segments",
        "bytes",
        "verdict",
    ]
    assert text[-1] == "short-0  orphans: 1 segment with objects, but without an entry"


def test_topics_and_partitions_narrow(klog: Klog, place: tuple[Path, Path]) -> None:
    data, _ = place
    rows = document(klog("remote", "ls", data, "-t", "f*", "-o", "json"))["partitions"]
    assert [row["topic"] for row in rows] == ["fine"]
    topic_id = rows[0]["topic_id"]
    assert document(klog("remote", "ls", data, "--topic-id", topic_id, "-o", "json"))["partitions"] == rows
    assert klog("remote", "ls", data, "-p", "7").exit_code == 4
    ran = klog("remote", "ls", data, "-t", "fien")
    assert (ran.exit_code, ran.stderr) == (4, b"klog: no topic fien in remote storage; did you mean fine?\n")


def test_nothing_is_changed(klog: Klog, place: tuple[Path, Path]) -> None:
    """No byte, no time, no new file, in the log dir and in the tier."""

    def state() -> dict[str, tuple[bytes, int]]:
        files = [path for each in place for path in each.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = state()
    for words in ([place[0]], [place[0], "--remote", place[1]], ["--remote", place[1], "--segments"]):
        klog("remote", "ls", *words)
    assert state() == before


def test_segments_whose_entries_are_unknown_are_no_orphans(klog: Klog, place: tuple[Path, Path]) -> None:
    """Without the partition of the topic that would have them, they are listed by their objects."""
    data, tier = place
    everything = document(klog("remote", "ls", data, "--remote", tier, "-o", "json"), 4)["partitions"]
    for number in range(3):
        shutil.rmtree(data / f"__remote_log_metadata-{number}")
        rows = document(klog("remote", "ls", data, "--remote", tier, "-o", "json"), 0, 4)["partitions"]
        for row, whole in zip(rows, everything, strict=True):
            assert row["orphans"] in (0, whole["orphans"])
    assert [(row["topic"], row["orphans"], row["segments"]) for row in rows] == [
        ("fine", 0, 6),
        ("gone", 0, 10),
        ("short", 0, 2),
    ]
    ran = klog("remote", "ls", data, "--remote", tier)
    assert b"no partition of __remote_log_metadata" in ran.stderr


def test_partitions_whose_events_are_elsewhere_are_named(klog: Klog, place: tuple[Path, Path]) -> None:
    """A broker has a part of the topic: what is remote of the other partitions is not known, and no hole."""
    assert b"not in these log dirs" not in klog("remote", "ls", place[0]).stderr
    seen = set()
    for number in range(3):
        others = place[0] / f"__remote_log_metadata-{number}"
        others.rename(place[0].parent / "away")
        ran = klog("remote", "ls", place[0])
        rows = json.loads(klog("remote", "ls", place[0], "-o", "json").stdout)["partitions"]
        joined = json.loads(klog("remote", "ls", place[0], "--remote", place[1], "-o", "json").stdout)["partitions"]
        (place[0].parent / "away").rename(others)
        assert {row["verdict"] for row in joined} <= {"whole", "orphans", "remote-only"}, (
            "the objects show what is remote"
        )
        unknown = [row for row in rows if row["verdict"] == "unknown"]
        assert all(row["remote_end_offset"] is None and row["holes"] == [] for row in unknown)
        assert {row["verdict"] for row in rows if row not in unknown} <= {"whole"}
        message = b"the partition of __remote_log_metadata with the events is not in" in ran.stderr
        assert message == bool(unknown) == (ran.exit_code == 4)
        seen |= {row["topic"] for row in unknown}
        assert b" hole" not in ran.stdout
    assert seen >= {"fine", "short"}


def test_objects_of_a_later_time_are_no_orphans(klog: Klog, place: tuple[Path, Path]) -> None:
    """Their entries came later, too; at the end the orphans are those of today."""
    data, tier = place
    base = ("remote", "ls", data, "--remote", tier, "-o", "json")
    today = {row["topic"]: row["orphans"] for row in document(klog(*base), 4)["partitions"]}
    events = klog("timeline", data, "--kind", "segment-tiered,segment-deleted-remotely", "-o", "jsonl").stdout
    times = sorted({json.loads(line)["time"] for line in events.splitlines()})
    for time in (0, *times[:: len(times) // 5]):
        rows = document(klog(*base, "--at-time", str(time)), 0, 4)["partitions"]
        assert all(row["orphans"] <= today[row["topic"]] for row in rows)
        assert not [row for row in rows if row["topic"] == "fine" and row["orphans"]], time
        shown = klog("remote", "verify", data, "--remote", tier, "--at-time", str(time), "--quick", "-o", "json")
        ids = {one["id"] for one in json.loads(shown.stdout)["findings"] if one["topic"] == "fine"}
        assert not ids & {"remote-orphan", "remote-metadata-lost", "remote-hole"}, time
    last = document(klog(*base, "--at-time", "2100-01-01T00:00:00Z"), 4)["partitions"]
    assert {row["topic"]: row["orphans"] for row in last} == today


def test_a_node_without_log_dirs(klog: Klog, place: tuple[Path, Path]) -> None:
    done = klog("remote", "ls", "--remote", place[1], "--node", "1")
    assert (done.exit_code, done.stderr) == (16, b"klog: --node 1: name the log dirs of that node\n")


def test_counts_agree_with_their_nouns(klog: Klog, place: tuple[Path, Path]) -> None:
    """One segment has, two segments have; one object, five objects; one more hole."""
    data, tier = place
    text = klog("remote", "ls", data, "--remote", tier).stdout.decode()
    assert "gone-0  orphans: 10 segments with objects, but without an entry" in text
    assert "short-0  orphans: 1 segment with objects, but without an entry" in text
    logs = sorted(tier.glob("kafka-tiered-storage/fine-0-*/*.log"))
    for count, words in ((0, "1 segment has no log or index, or a log of"), (3, "2 segments have no log or index, or")):
        logs[count].unlink()
        assert f"fine-0  damaged: {words}" in klog("remote", "ls", data, "--remote", tier).stdout.decode()
    alone = ("remote", "ls", "--remote", tier, "-t", "gone")
    for number, log in enumerate(sorted(tier.glob("kafka-tiered-storage/gone-0-*/*.log"))):
        if number in (1, 3, 5, 7):
            log.unlink()
        text = klog(*alone).stdout.decode()
        assert text.count("hole: no segment has") == min(3, (number + 1) // 2 if number < 8 else 4)
        assert ("and 1 more hole" in text) == (number >= 7)
    assert "more holes" not in text


def test_an_earlier_time_has_no_hole_before_the_local_log_of_today(klog: Klog, place: tuple[Path, Path]) -> None:
    """The offsets behind the last remote one were in the local log then, whatever is left of it."""
    for time in ("0", "2026-11-26T19:41:00Z", "2100-01-01T00:00:00Z"):
        done = klog("remote", "ls", place[0], "-t", "fine", "--at-time", time, "-o", "json")
        (row,) = document(done, 0)["partitions"]
        assert (row["holes"], row["verdict"]) == ([], "whole" if row["segments"] else "local-only")


def test_a_missing_segment_is_a_hole_where_no_metadata_are_left(klog: Klog, place: tuple[Path, Path]) -> None:
    _, tier = place
    victims = sorted(tier.glob("kafka-tiered-storage/fine-0-*/*.log"))
    victims[2].unlink()
    row = next(
        one
        for one in document(klog("remote", "ls", "--remote", tier, "-o", "json"), 4)["partitions"]
        if one["topic"] == "fine"
    )
    assert (row["verdict"], row["holes"]) == ("hole", [[33, 49]])


def test_offsets_that_neither_tier_has_are_a_hole(klog: Klog, tmp_path: Path) -> None:
    """The topic is tiered according to the metadata log, and no segment was ever copied."""
    data = tmp_path / "data"
    log = MetadataLog(data)
    log.add(topic("orders", 1), config(2, "orders", "remote.storage.enable", "true"))
    log.add(topic("__remote_log_metadata", 99))
    known = {"replicas": [1], "isr": [1], "removingReplicas": [], "addingReplicas": [], "leader": 1, "leaderEpoch": 0}
    log.add(value("Partition", partitionId=0, topicId=uuid(99), partitionEpoch=0, directories=[uuid(5)], **known))
    (data / "orders-0").mkdir()
    (data / "orders-0" / f"{40:020}.log").touch()
    (data / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    (data / "__remote_log_metadata-0").mkdir()
    (data / "__remote_log_metadata-0" / f"{0:020}.log").touch()
    (row,) = document(klog("remote", "ls", data, "-o", "json"), 4)["partitions"]
    assert (row["log_start_offset"], row["local_log_start_offset"], row["holes"]) == (0, 40, [[0, 39]])
    assert "hole: no segment has offsets 0–39" in klog("remote", "ls", data).stdout.decode()


def test_damage_in_the_topic_is_said(klog: Klog, place: tuple[Path, Path]) -> None:
    """A flipped bit: records are missing, and the exit code says so."""
    data, _ = place
    log = max(data.glob("__remote_log_metadata-*/*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[100] ^= 0xFF
    log.write_bytes(content)
    ran = klog("remote", "ls", data)
    assert ran.exit_code & 4
    assert log.name in ran.stderr.decode()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 16, "name log dirs, --remote TIER, or both"),
        (("--remote", "absent"), 8, "absent: No such file"),
        (("--remote", "file"), 8, "file: a file"),
        (("--remote", "other"), 16, "no tier"),
        (("--remote", "ftp://x"), 16, "s3://"),
        (("--remote", "s3://"), 16, "no bucket"),
        (("data/fine-0",), 16, "expected a log dir"),
        (("data", "--node", "9"), 16, "--node 9: the log dirs are of node 1"),
        (("data", "--remote-layout", "local"), 16, "need --remote"),
        (("data", "--remote", "tier", "--remote-layout", "locl"), 16, "did you mean local"),
        (("data", "--remote", "tier", "--remote-keys", "x"), 16, "expected KEYID=FILE"),
        (("data", "--remote", "tier", "--remote-keys", "x=absent"), 16, "absent"),
        (("data", "-o", "xml"), 16, "expected one of text, json"),
        (("data", "--cluster", "nothing"), 16, "no log dir is of cluster nothing"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    klog: Klog, place: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, text: str
) -> None:
    folder = place[0].parent
    monkeypatch.chdir(folder)
    (folder / "file").touch()
    (folder / "other").mkdir()
    (folder / "other" / "README").touch()
    ran = klog("remote", "ls", *words)
    said = ran.stderr.decode()
    assert (ran.exit_code, ran.stdout) == (code, b"")
    assert text in said
    assert said.count("\n") == 1


def test_odd_things_in_a_tier_are_no_objects(klog: Klog, place: tuple[Path, Path]) -> None:
    """Links in a circle, directories in place of files, names of any bytes, names that would leave the tier."""
    data, tier = place
    inside = next(tier.glob("kafka-tiered-storage/fine-0-*"))
    (inside / "loop").symlink_to(tier)
    (inside / f"{99:020}-AAAAAAAAAAAAAAAAAAAAAA.log").mkdir()
    (inside / os.fsdecode(b"\xff\x1b[31m")).touch()
    os.mkfifo(inside / "pipe")
    rows = document(klog("remote", "ls", data, "--remote", tier, "-t", "fine", "-o", "json"))["partitions"]
    assert [(row["verdict"], row["segments"], row["orphans"]) for row in rows] == [("whole", 6, 0)]


def test_log_dirs_of_two_clusters_are_refused(klog: Klog, place: tuple[Path, Path], tmp_path: Path) -> None:
    other = writable_copy(place[0], tmp_path / "other")
    text = (other / "meta.properties").read_text()
    cluster = next(line.partition("=")[2] for line in text.splitlines() if line.startswith("cluster.id"))
    (other / "meta.properties").write_text(text.replace(cluster, "another"))
    ran = klog("remote", "ls", place[0], other)
    assert ran.exit_code == 8
    assert b"--cluster ID chooses one" in ran.stderr
    assert klog("remote", "ls", place[0], other, "--cluster", cluster).exit_code == 0


def test_copies_of_one_disk_are_not_added_up(klog: Klog, place: tuple[Path, Path], tmp_path: Path) -> None:
    other = writable_copy(place[0], tmp_path / "other")
    alone = klog("remote", "ls", place[0], "--segments", "-o", "jsonl").stdout
    assert klog("remote", "ls", place[0], other, "--segments", "-o", "jsonl").stdout == alone


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


def test_a_bucket_is_listed_as_the_directory(
    klog: Klog, place: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    data, tier = place
    upload(server, tier, "tier")
    use(monkeypatch, server)
    for words in ((data,), ()):
        ours, theirs = (
            klog("remote", "ls", *words, "--remote", uri, "--segments", "-o", "jsonl") for uri in (tier, "s3://tier")
        )
        assert (ours.stdout, ours.exit_code) == (theirs.stdout, theirs.exit_code)


def test_truths_are_those_of_the_corpora() -> None:
    """The fixture is one of their images."""
    if (CORPORA / "tiered").exists():
        truth = json.loads(gzip.decompress((CORPORA / "tiered/orphans/truth.json.gz").read_bytes()))
        assert sorted(truth["topics"]) == ["fine", "short"]
