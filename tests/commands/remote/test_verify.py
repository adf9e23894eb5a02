"""`klog remote verify`: clean tiers are clean, each damage has its id and its object, and says what a broker does."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from klog.cluster.remote_log.events import metadata_partition
from klog.commands.remote import verify
from klog.commands.remote.remote_findings import REMOTE_KINDS
from klog.commands.remote.segment_checks import check_segment
from klog.partition.verify import segment_pass

from tests.cluster.remote_log.test_remote_log import TOPIC
from tests.commands.remote.test_ls import KEYS, Klog, document
from tests.conftest import writable_copy
from tests.oracles.plain import decode
from tests.oracles.plain.encode import Record, batch
from tests.support import tiers
from tests.support.remote_log_values import Whose, started, updated, uuid
from tests.support.s3_server import s3_server, upload, use
from tests.support.tiers import IMAGES, Situation, situation

DEPTHS = ((), ("--quick",), ("--deep",))
STOPS, SKIPS = "consumers stop at its first offset", "without an error"


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """The log dir and the tier of the fixture."""
    return tiers.unpack(tmp_path / "tiered")


def checked(klog: Klog, found: Situation, *more: str) -> Any:
    keys = KEYS if "encrypted" in found.name else []
    return document(klog("remote", "verify", *found.data, "--remote", found.tier, "-o", "json", *keys, *more), 0, 4)


def problems(shown: Any) -> list[Any]:
    return [one for one in shown["findings"] if one["severity"] != "note"]


CLEAN = [one for one in IMAGES if one[0] not in ("damaged", "orphans", "stuck", "unclean-tail")]


@pytest.mark.corpora
@pytest.mark.parametrize("depth", DEPTHS, ids=lambda depth: " ".join(depth) or "default")
@pytest.mark.parametrize(("name", "moment"), CLEAN)
def test_clean_tiers_are_clean(
    klog: Klog, image: Callable[[str], Path], name: str, moment: str, depth: tuple[str, ...]
) -> None:
    """Unfinished copies and dead lineages are notes."""
    shown = checked(klog, situation(image, name, moment), *depth)
    assert problems(shown) == []
    assert {one["id"] for one in shown["findings"]} <= {"remote-copy-unfinished", "remote-dead-lineage"}
    assert shown["segments"] > 2
    assert (shown["batches"] > 0) == (depth != ("--quick",))


@pytest.mark.corpora
@pytest.mark.parametrize("depth", DEPTHS, ids=lambda depth: " ".join(depth) or "default")
@pytest.mark.parametrize("name", ["house", "damaged", "unclean-tail", "aiven-zstd", "aiven-encrypted"])
def test_any_number_of_threads_has_the_same_answer(
    klog: Klog, image: Callable[[str], Path], name: str, depth: tuple[str, ...]
) -> None:
    """The same findings in the same order, and the same counts."""
    found = situation(image, name)
    alone = checked(klog, found, *depth, "-j", "1")
    assert [checked(klog, found, *depth, "-j", jobs) for jobs in ("2", "4", "9")] == [alone] * 3
    assert bool(problems(alone)) == (name in ("damaged", "unclean-tail"))


@pytest.mark.parametrize("jobs", [1, 2, 6])
def test_so_many_segments_are_checked_at_once(
    klog: Klog, place: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """A check that waits for the others ends only if these run beside it; no more than that run."""
    together, running, most = threading.Barrier(jobs, timeout=30), 0, 0
    lock = threading.Lock()

    def check(*given: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        try:
            return check_segment(*given)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(verify, "check_segment", check)
    shown = document(
        klog("remote", "verify", place[0], "--remote", place[1], "-t", "fine", "-o", "json", "-j", str(jobs))
    )
    assert (shown["segments"], shown["findings"], most) == (6, [], jobs)


def test_a_large_segment_is_shared_by_threads(klog: Klog, place: tuple[Path, Path], monkeypatch: Any) -> None:
    """Threads without a segment of their own read a part of one, and find the same."""
    monkeypatch.setattr(segment_pass, "_LARGE_BYTES", 1)
    log = sorted(place[1].glob("kafka-tiered-storage/fine-0-*/*.log"))[2]
    content = bytearray(log.read_bytes())
    content[-10] ^= 0xFF
    log.write_bytes(content)
    words = ("remote", "verify", place[0], "--remote", place[1], "-t", "fine", "-o", "json", "-j")
    alone, shared = (document(klog(*words, jobs), 4) for jobs in ("1", "12"))
    assert [one["id"] for one in alone["findings"]] == ["bad-crc"]
    assert shared == alone


EXPECTED = {
    "log-missing": ("remote-log-missing", STOPS),
    "log-flip": ("bad-crc", "exception at this batch"),
    "log-cut": ("remote-size-differs", SKIPS),
    "log-cut-clean": ("remote-size-differs", SKIPS),
    "log-grown": ("remote-size-differs", "consumers fail behind the last batch"),
    "log-empty": ("remote-size-differs", SKIPS),
    "index-missing": ("remote-index-missing", STOPS),
    "index-odd": ("index-ragged", STOPS),
    "index-lies": ("index-disagrees", "wrong position"),
    "timeindex-missing": ("remote-index-missing", STOPS),
    "txnindex-missing": ("remote-txn-index-missing", "aborted records to consumers of committed data"),
    "snapshot-missing": ("remote-snapshot-missing", "until a follower has to rebuild"),
    "snapshot-flip": ("snapshot-corrupt", "until a follower has to rebuild"),
    "epochs-missing": ("remote-epochs-missing", "until a follower has to rebuild"),
    "epochs-differ": ("remote-epochs-differ", "a follower that has to rebuild its log takes them over"),
    "all-missing": ("remote-log-missing", STOPS),
    "first-missing": ("remote-log-missing", STOPS),
    "swapped": ("remote-wrong-log", SKIPS),
    "orphan": ("remote-orphan", "for ever"),
}
"""For each damage of the corpus its id, and a part of the reaction that a real 4.3.1 showed."""


@pytest.mark.corpora
@pytest.mark.parametrize("damage", EXPECTED)
def test_each_damage_has_its_id_its_object_and_what_a_broker_does(
    klog: Klog, image: Callable[[str], Path], damage: str
) -> None:
    found = situation(image, "damaged")
    truth = found.truth["damages"][f"d-{damage}"]
    for depth in ((), ("--deep",)):
        shown = checked(klog, found, "-t", f"d-{damage}", *depth)
        finding_id, reaction = EXPECTED[damage]
        first = next(one for one in shown["findings"] if one["id"] == finding_id)
        assert (first["topic"], first["tier"]) == (f"d-{damage}", "remote")
        assert reaction in first["broker"]
        stem = truth["orphan" if damage == "orphan" else "stem"]
        assert first["file"].rpartition(".")[0].endswith(stem)
        assert first["file"].startswith(truth["file"].rpartition("/")[0])
        if damage != "orphan":
            assert first["segment_id"] == stem[21:]
        others = {one["segment_id"] for one in problems(shown)} - {first["segment_id"]}
        assert len(others) == (damage == "swapped")


@pytest.mark.corpora
def test_what_is_as_it_should_be_beside_damage_is_clean(klog: Klog, image: Callable[[str], Path]) -> None:
    assert checked(klog, situation(image, "damaged"), "-t", "d-healthy")["findings"] == []


@pytest.mark.corpora
def test_lineages_deletions_and_orphans(klog: Klog, image: Callable[[str], Path]) -> None:
    tail = checked(klog, situation(image, "unclean-tail"))
    assert [(one["id"], one["offset"]) for one in problems(tail)] == [("remote-dead-tail", 60)]
    assert problems(tail)[0]["message"] == "offset 60 is not in the history of the partition"
    stuck = checked(klog, situation(image, "stuck"))
    ids = [one["id"] for one in stuck["findings"]]
    assert sorted(ids) == ["remote-below-start", "remote-below-start", "remote-delete-unfinished"]
    orphans = checked(klog, situation(image, "orphans"))
    assert [one["id"] for one in problems(orphans)] == ["remote-orphan"] * 11


# one segment's objects, damaged in every way

KINDS = ("log", "index", "timeindex", "leader_epoch_checkpoint", "snapshot")


def one_segment(place: tuple[Path, Path]) -> dict[str, Path]:
    stem = sorted(place[1].glob("kafka-tiered-storage/fine-0-*/*.log"))[1].with_suffix("")
    return {kind: stem.with_suffix(f".{kind}") for kind in KINDS}


def ids_of(klog: Klog, place: tuple[Path, Path], *more: str) -> set[str]:
    shown = document(
        klog("remote", "verify", place[0], "--remote", place[1], "-t", "fine", "-o", "json", *more), 0, 4, 12
    )
    return {one["id"] for one in problems(shown)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_cut_of_an_object_is_found(klog: Klog, place: tuple[Path, Path], kind: str) -> None:
    """An index that lacks its last entries only makes lookups slower, and is what brokers may write."""
    path = one_segment(place)[kind]
    content = path.read_bytes()
    step = 97 if kind == "log" else 3
    for size in range(0, len(content), step):
        path.write_bytes(content[:size])
        assert bool(ids_of(klog, place)) != (kind == "index" and size % 8 == 0), size
    path.unlink()
    assert ids_of(klog, place)


@pytest.mark.parametrize("kind", ["log", "snapshot"])
def test_flipped_bits_of_an_object_are_found(klog: Klog, place: tuple[Path, Path], kind: str) -> None:
    """In epochs of batches, too, which no checksum covers."""
    path = one_segment(place)[kind]
    content, dice = path.read_bytes(), random.Random(kind)
    for _ in range(40):
        bit = dice.randrange(8 * len(content))
        path.write_bytes(flipped(content, bit))
        assert ids_of(klog, place, "--deep"), (kind, bit)


def flipped(content: bytes, bit: int) -> bytes:
    data = bytearray(content)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def test_flipped_bits_of_an_offset_index_are_found_or_without_effect(klog: Klog, place: tuple[Path, Path]) -> None:
    """Without a finding each offset is still found: the entry below it leads to a batch at or before its own."""
    paths = one_segment(place)
    content, base = paths["index"].read_bytes(), int(paths["log"].name[:20])
    batches = [one for one in decode.scan(paths["log"].read_bytes()) if isinstance(one, decode.Batch)]
    starts = {one.position: one.base_offset for one in batches}
    silent = 0
    for bit in range(8 * len(content)):
        damaged = flipped(content, bit)
        paths["index"].write_bytes(damaged)
        if ids_of(klog, place, "--quick") or ids_of(klog, place):
            continue
        silent += 1
        for offset in range(base, batches[-1].last_offset + 1):
            entries = [(base + relative, position) for relative, position in struct.iter_unpack(">ii", damaged)]
            position = max((one for one in entries if one[0] <= offset), default=(base, 0))[1]
            assert starts[position] <= offset, bit
    assert silent < 6


def test_flipped_bits_of_a_time_index_are_found_or_without_effect(klog: Klog, place: tuple[Path, Path]) -> None:
    """Without a finding an entry has its timestamp, and leads no farther than before."""
    path = one_segment(place)["timeindex"]
    content, silent = path.read_bytes(), 0
    intact = list(struct.iter_unpack(">qi", content))
    for bit in range(8 * len(content)):
        damaged = flipped(content, bit)
        path.write_bytes(damaged)
        if ids_of(klog, place):
            continue
        silent += 1
        for (timestamp, relative), (known, farthest) in zip(struct.iter_unpack(">qi", damaged), intact, strict=True):
            assert timestamp == known
            assert 0 <= relative <= farthest
    assert silent < 6


def test_epochs_of_a_tier_that_are_others(klog: Klog, place: tuple[Path, Path]) -> None:
    path = one_segment(place)["leader_epoch_checkpoint"]
    for text, expected in (
        ("0\n1\n7 0\n", "remote-epochs-differ"),
        ("0\n2\n0 0\n3 20\n", "remote-epochs-differ"),
        ("1\n1\n0 0\n", "remote-epochs-malformed"),
        ("0\n5\n0 0\n", "remote-epochs-malformed"),
        ("", "remote-epochs-malformed"),
        ("0\n0\n", "remote-epochs-malformed"),
    ):
        path.write_text(text)
        assert ids_of(klog, place) == {expected}, text


# the metadata and the local log


def append(data: Path, number: int, *values: bytes) -> None:
    """Append records to a partition of the topic."""
    log = next((data / f"{TOPIC}-{number}").glob("*.log"))
    offset = 1000
    content = batch([Record(offset + i, 1_800_000_000_000, None, value) for i, value in enumerate(values)])
    with log.open("ab") as file:
        file.write(content)


def test_records_that_change_nothing_or_stop_a_broker(klog: Klog, place: tuple[Path, Path]) -> None:
    append(place[0], 1, b"\7", updated(uuid(5), 1), started(uuid(6), 0, 1, {0: 0}, whose=Whose("fine", 0, uuid(77))))
    shown = document(klog("remote", "verify", place[0], "--remote", place[1], "--quick", "-o", "json"), 4)
    found = {one["id"]: one for one in shown["findings"]}
    assert found["remote-metadata-malformed"]["offset"] == 1000
    assert (found["remote-metadata-malformed"]["tier"], found["remote-metadata-malformed"]["file"]) == (
        "metadata",
        f"{TOPIC}-1",
    )
    assert "remote-event-dropped" in found or "remote-event-misplaced" in found


def test_a_local_log_that_is_gone_is_the_end_of_the_remote_one(klog: Klog, place: tuple[Path, Path]) -> None:
    """A leader that starts so deletes the remote segments."""
    shutil.rmtree(place[0] / "fine-0")
    shown = document(klog("remote", "verify", place[0], "--remote", place[1], "-t", "fine", "-o", "json"), 4)
    (found,) = problems(shown)
    assert (found["id"], found["tier"]) == ("remote-local-gone", "local")
    assert "deletes all of these segments" in found["broker"]


def test_lost_metadata_are_no_orphans(klog: Klog, place: tuple[Path, Path]) -> None:
    """The topic was emptied: the next start moves the log start to the local log."""
    for log in place[0].glob(f"{TOPIC}-*/*.log"):
        log.write_bytes(b"")
    shown = document(klog("remote", "verify", place[0], "--remote", place[1], "-o", "json"), 4)
    assert {one["id"] for one in problems(shown)} == {"remote-metadata-lost"}
    assert {one["topic"] for one in problems(shown)} == {"fine", "gone", "short"}


def test_metadata_that_are_gone_are_lost(klog: Klog, place: tuple[Path, Path]) -> None:
    """The directories of the topic are gone, from the only disk that had them: nothing is clean."""
    for folder in place[0].glob(f"{TOPIC}-*"):
        shutil.rmtree(folder)
    shown = document(klog("remote", "verify", place[0], "--remote", place[1], "-o", "json"), 4)
    assert {one["id"] for one in problems(shown)} == {"remote-metadata-lost"}
    assert {one["topic"] for one in problems(shown)} == {"fine", "gone", "short"}


def test_metadata_that_may_be_elsewhere_are_not_known(klog: Klog, place: tuple[Path, Path]) -> None:
    """Without a metadata log nothing shows who has the topic: it was not checked, and that is no success."""
    for folder in (*place[0].glob(f"{TOPIC}-*"), place[0] / "__cluster_metadata-0"):
        shutil.rmtree(folder)
    ran = klog("remote", "verify", place[0], "--remote", place[1], "-o", "json")
    assert (problems(json.loads(ran.stdout)), ran.exit_code) == ([], 8)
    assert b"is not in these log dirs" in ran.stderr


@pytest.mark.parametrize("missing", [(2,), (1, 2), (0,), (0, 1)])
def test_a_part_of_the_topic_that_was_not_given_makes_no_orphans(
    klog: Klog, place: tuple[Path, Path], missing: tuple[int, ...]
) -> None:
    """Without a metadata log the partitions that are there passed for all: nothing shows how many there are."""
    data, tier = place
    command = ("remote", "verify", data, "--remote", tier, "-o", "json")
    everything = {(one["id"], one["segment_id"]) for one in document(klog(*command), 4)["findings"]}
    listed = json.loads(klog("remote", "ls", data, "--remote", tier, "-o", "json").stdout)["partitions"]
    unknown = [one["topic"] for one in listed if metadata_partition(one["topic_id"], 0, 3) in missing]
    for number in missing:
        shutil.rmtree(data / f"{TOPIC}-{number}")
    shutil.rmtree(data / "__cluster_metadata-0")
    done = klog(*command)
    assert bool(done.exit_code & 8) == bool(unknown), "a part was not checked"
    found = {(one["id"], one["segment_id"]) for one in json.loads(done.stdout)["findings"]}
    assert found <= everything
    rows = json.loads(klog("remote", "ls", data, "--remote", tier, "-o", "json").stdout)["partitions"]
    orphaned = [row["topic"] for row in rows if row["orphans"]]
    assert orphaned == [one["topic"] for one in listed if one["orphans"] and one["topic"] not in unknown]
    refused = klog("remote", "orphans", data, "--remote", tier, "--older-than", "0", "-o", "keys")
    assert (refused.exit_code, refused.stdout) == (8, b"")


def test_damage_in_the_topic_is_a_finding(klog: Klog, place: tuple[Path, Path]) -> None:
    """`klog verify --remote` has it among its own: it is there once."""
    log = max(place[0].glob(f"{TOPIC}-*/*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[100] ^= 0xFF
    log.write_bytes(content)
    shown = document(klog("remote", "verify", place[0], "--remote", place[1], "--quick", "-o", "json"), 4)
    (found,) = [one for one in shown["findings"] if one["id"] == "bad-crc"]
    assert (found["tier"], found["file"]) == ("metadata", log.parent.name)
    assert str(log) in found["message"]
    assert not klog("remote", "verify", place[0], "--remote", place[1]).stdout.startswith(b"clean")
    rows = document(klog("verify", place[0], "--remote", place[1], "-o", "json"), 4)["findings"]
    assert [one["tier"] for one in rows if one["id"] == "bad-crc"] == ["local"]


def test_entries_in_a_log_that_cannot_be_read_are_not_lost(klog: Klog, place: tuple[Path, Path]) -> None:
    """Somebody restores the log, and has not deleted objects as orphans before."""
    for log in place[0].glob(f"{TOPIC}-*/*.log"):
        log.write_bytes(bytes([255]) * log.stat().st_size)
    shown = document(klog("remote", "verify", place[0], "--remote", place[1], "-o", "json"), 4)
    found = {(one["id"], one["tier"]) for one in shown["findings"]}
    assert {tier for _, tier in found} == {"metadata", "remote"}
    assert not {finding_id for finding_id, _ in found} & {"remote-orphan", "remote-metadata-lost"}


def test_an_empty_tier_has_lost_every_segment(klog: Klog, place: tuple[Path, Path], tmp_path: Path) -> None:
    """Its layout is unknown; the metadata show which segments there should be."""
    (tmp_path / "empty").mkdir()
    for depth in DEPTHS:
        words = ("remote", "verify", place[0], "--remote", tmp_path / "empty", "-t", "fine", "-o", "json", *depth)
        shown = document(klog(*words), 4)
        assert [one["id"] for one in shown["findings"]] == ["remote-log-missing"] * shown["segments"]
        assert (shown["segments"], shown["objects"]) == (6, 0)
    assert b"remote-log-missing" in klog("verify", place[0], "--remote", tmp_path / "empty").stdout
    dumped = klog("dump", place[0], "--remote", tmp_path / "empty", "-t", "fine", "-o", "jsonl")
    lines = [json.loads(line) for line in dumped.stdout.splitlines()]
    assert dumped.exit_code == 4
    assert [line.get("damage") for line in lines[:6]] == ["unreadable"] * 6
    assert lines[6]["offset"] == 100


def test_what_is_not_there_is_not_clean(klog: Klog, place: tuple[Path, Path]) -> None:
    """A typing error in a number or an id."""
    for words in (["-p", "99"], ["--topic-id", uuid(5)]):
        ran = klog("remote", "verify", place[0], "--remote", place[1], *words)
        assert (ran.exit_code, ran.stdout, ran.stderr) == (4, b"", b"klog: no partition in remote storage\n")


def test_events_of_other_topics_are_no_answer(klog: Klog, place: tuple[Path, Path]) -> None:
    """`--topic` narrows the events as well; a record that stops the broker concerns all."""
    other = started(uuid(6), 0, 1, {0: 0}, whose=Whose("other", 0, uuid(77)))
    append(place[0], 1, other, b"\7", updated(uuid(5), 1))
    found = {}
    for narrowed in ([], ["-t", "fine"]):
        words = ("remote", "verify", place[0], "--remote", place[1], "--quick", "-o", "json", *narrowed)
        shown = document(klog(*words), 0, 4)["findings"]
        found[bool(narrowed)] = {(one["id"], one["topic"]) for one in shown if one["tier"] == "metadata"}
    assert ("remote-metadata-malformed", None) in found[True]
    assert {topic for _, topic in found[True]} <= {None, "fine"}
    assert {topic for _, topic in found[False]} > {None}


def test_at_a_time_before_all_records_there_is_no_entry(klog: Klog, place: tuple[Path, Path]) -> None:
    """Objects that were stored by then have lost theirs; later ones were not there yet."""
    words = ("remote", "verify", place[0], "--remote", place[1], "--quick", "-o", "json", "--at-time", "1")
    assert document(klog(*words))["findings"] == []
    for path in place[1].rglob("*"):
        os.utime(path, (0, 0))
    assert {one["id"] for one in document(klog(*words), 4)["findings"]} == {"remote-metadata-lost"}


@pytest.mark.corpora
def test_bytes_that_differ_from_the_local_log(klog: Klog, image: Callable[[str], Path], tmp_path: Path) -> None:
    """Only --deep compares them; the checksum of the local batch is right in the end."""
    found = situation(image, "house")
    data = writable_copy(found.leader, tmp_path / "data")
    log = sorted((data / "kept-0").glob("*.log"))[1]
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.write_bytes(content)
    words = ("remote", "verify", data, "--remote", found.tier, "-t", "kept", "-o", "json")
    assert document(klog(*words))["findings"] == []
    (one,) = document(klog(*words, "--deep"), 4)["findings"]
    assert (one["id"], one["tier"], one["file"], one["position"]) == (
        "remote-local-differs",
        "local",
        f"kept-0/{log.name}",
        200,
    )


# encrypted objects, buckets, manners


@pytest.mark.corpora
def test_without_the_key_names_and_sizes_are_checked(klog: Klog, image: Callable[[str], Path]) -> None:
    found = situation(image, "aiven-encrypted")
    shown = document(klog("remote", "verify", *found.data, "--remote", found.tier, "-o", "json"), 4)
    assert {one["id"] for one in shown["findings"]} == {"remote-encrypted"}
    assert len(shown["findings"]) == shown["segments"]


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["aiven-plain", "aiven-zstd", "aiven-encrypted"])
def test_damaged_chunks_and_manifests(klog: Klog, image: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    """Each object of one segment, flipped, cut and removed."""
    found = situation(image, name)
    tier = writable_copy(found.tier, tmp_path / "tier")
    log = sorted(path for path in tier.rglob("*.log") if "alpha-" in str(path))[2]
    dice = random.Random(name)
    for path in (log, log.with_suffix(".indexes"), log.with_suffix(".rsm-manifest")):
        content = path.read_bytes()
        cuts = [content[: dice.randrange(len(content))] for _ in range(6)]
        flips = []
        is_covered = path.suffix == ".log" or (name, path.suffix) == ("aiven-encrypted", ".indexes")
        for _ in range(12 if is_covered else 0):
            data = bytearray(content)
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            flips.append(bytes(data))
        for damaged in (*cuts, *flips, None):
            path.unlink(missing_ok=True)
            if damaged is not None:
                path.write_bytes(damaged)
            words = ("remote", "verify", *found.data, "--remote", tier, "-t", "alpha", "--deep", "-o", "json", *KEYS)
            shown = document(klog(*words), 4)
            assert {one["segment_id"] for one in problems(shown)} == {log.stem[21:]}, (path.suffix, damaged)
            assert all(one["file"].startswith("bucket/") for one in problems(shown))
            assert not [one for one in problems(shown) if "None" in one["message"]]
            if damaged in flips and name == "aiven-encrypted":
                assert {one["id"] for one in problems(shown)} == {"remote-object-malformed"}, path.suffix
        path.write_bytes(content)


@pytest.mark.corpora
def test_a_wrong_key_is_one_kind_of_finding(klog: Klog, image: Callable[[str], Path], tmp_path: Path) -> None:
    """Its logs were called garbage at their ends, for the reason `None`."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    found, other = situation(image, "aiven-encrypted"), tmp_path / "other.pem"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    other.write_bytes(key.private_bytes(*encoding))
    words = ("remote", "verify", *found.data, "--remote", found.tier, "--remote-keys", f"key1={other}", "-o", "json")
    shown = document(klog(*words), 4)
    assert {one["id"] for one in problems(shown)} == {"remote-object-malformed"}
    assert all(one["message"].startswith("wrong key or damaged") for one in problems(shown))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


def test_a_bucket_has_the_findings_of_the_directory(
    klog: Klog, place: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    data, tier = place
    one_segment(place)["index"].unlink()
    upload(server, tier, "verified")
    use(monkeypatch, server)
    ours, theirs = (klog("remote", "verify", data, "--remote", uri, "-o", "jsonl") for uri in (tier, "s3://verified"))
    assert ours.stdout == theirs.stdout
    assert b"remote-index-missing" in ours.stdout


def test_people_see_the_verdict_first(klog: Klog, place: tuple[Path, Path]) -> None:
    one_segment(place)["timeindex"].unlink()
    ran = klog("remote", "verify", *place[:1], "--remote", place[1], "-t", "fine")
    lines = ran.stdout.decode().splitlines()
    assert ran.exit_code == 4
    assert lines[0].startswith("damaged: 1 case of damage in 1 partition, 6 segments, 29 objects")
    assert lines[2].startswith("fine-0  segment ")
    assert lines[-1] == "klog explain remote-index-missing"
    clean = klog("remote", "verify", place[0], "--remote", place[1], "-t", "fine", "--quick", "--deep")
    assert (clean.exit_code, clean.stderr) == (16, b"klog: --quick and --deep: one of them\n")
    assert klog("remote", "verify", place[0]).exit_code == 16


def test_each_kind_is_explained(klog: Klog) -> None:
    """The table is complete: meaning and reaction of each."""
    for kind in REMOTE_KINDS.values():
        row = json.loads(klog("explain", kind.id, "-o", "json").stdout)["explanations"][0]
        assert (row["command"], row["meaning"], row["broker"]) == ("remote verify", kind.meaning, kind.broker)
        assert not kind.fix
