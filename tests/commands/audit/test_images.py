"""`klog audit misrouted` on images of real brokers: misrouted by a real producer, misrouted by hand, and clean."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.base.errors import range_text

from tests.commands.audit.auditing import ARCHIVES, Place, audit, disks, log_dirs, place, places, truth_of
from tests.conftest import CORPORA, run_klog

Image = Callable[[str], Path]

pytestmark = pytest.mark.corpora


def test_what_a_real_producer_misrouted_is_found_with_its_home(image: Image) -> None:
    """The records contain their intended partitions: seven batches of producer 3.9.1, none of 3.9.2."""
    truth = truth_of("stall")
    found = audit(*disks(image, "stall"))
    assert found["batches"] == truth["batches"]
    rows = {place(row): row for row in found["misrouted"]}
    astray = {(one["place"][0], one["place"][1]): tuple(one["home"]) for one in truth["astray"]}
    assert set(rows) == set(astray)
    for where, home in astray.items():
        assert places(rows[where]["twins"]) == {home}
        assert rows[where]["home"] is None or place(rows[where]["home"]) == home
        assert (rows[where]["confidence"] == "confirmed") == (rows[where]["home"] is not None)
    assert {row["topic"].split("_")[0] for row in found["misrouted"]} == {"plain", "idem", "packed"}


def test_two_batches_with_one_crc_and_size_by_chance_are_no_twins(image: Image) -> None:
    """Among 42 569 batches there is such a pair; CRC and size never suffice."""
    pair = {("idem_f4-2", 1098), ("plain_f0-1", 526)}
    found = audit(*disks(image, "stall"))
    assert not pair & places(found["misrouted"])
    assert not pair & {place(twin) for row in found["misrouted"] for twin in row["twins"]}


def test_idempotent_producers_prove_which_place_is_foreign(image: Image) -> None:
    """A producer that is unknown to a partition may begin with any sequence: it was never meant to write there."""
    found = audit(*disks(image, "stall"), "--topic", "idem_*")
    assert [(row["confidence"], "sequence-begins-late" in row["reasons"]) for row in found["misrouted"]] == [
        ("confirmed", True),
        ("confirmed", True),
    ]


def test_every_batch_that_was_misrouted_by_hand_is_found(image: Image) -> None:
    """The batches have no producer, unknown ones, sequences in order, newer epochs, two places, stamps, new
    compression."""
    truth = truth_of("hand")
    found = audit(*disks(image, "hand"))
    assert found["batches"] == truth["batches"]
    rows = {place(row): row for row in found["misrouted"]}
    astray = {(one["place"][0], one["place"][1]): one for one in truth["astray"] if not one["deep"]}
    for where, one in astray.items():
        homes = {tuple(one["home"]), *map(tuple, one.get("also", ()))}
        row = rows.pop(where)
        assert row["last_offset"] == one["place"][2], one["why"]
        assert homes <= places(row["twins"]), one["why"]
        assert row["home"] is None or place(row["home"]) in homes, one["why"]
        assert row["confidence"] == ("confirmed" if row["home"] else "likely")
        assert row["reasons"][0] == ("same-records" if row["topic"] == "squeezed" else "same-bytes")
    assert not rows
    likely = [where for where, one in astray.items() if _row(found, where)["home"] is None]
    assert sorted(likely) == [("orders-2", 50), ("payments-3", 43)], (
        "nothing but a program's word tells these two apart"
    )


def _row(found: dict[str, Any], where: tuple[str, int]) -> dict[str, Any]:
    return next(row for row in found["misrouted"] if place(row) == where)


def test_a_batch_whose_twin_is_gone_is_found_by_its_records(image: Image) -> None:
    """Its keys belong elsewhere, and its producer begins late: only reading records shows the first."""
    deep = [one for one in truth_of("hand")["astray"] if one["deep"]]
    usual, read = (audit(*disks(image, "hand"), *more)["misrouted"] for more in ((), ("--deep",)))
    new = [row for row in read if place(row) not in places(usual)]
    assert [(row["topic"] + f"-{row['partition']}", row["first_offset"], row["last_offset"]) for row in new] == [
        tuple(one["place"]) for one in deep
    ]
    assert [(row["confidence"], row["home"], row["twins"]) for row in new] == [("possible", None, [])]
    assert {"sequence-begins-late", "key-elsewhere"} <= set(new[0]["reasons"])
    assert [row for row in read if row not in new] == usual


def test_legal_twins_are_summed_up_by_pair_and_nothing_of_them_is_reported(image: Image) -> None:
    """A program that writes two topics, a mirror, a pair of partitions: hundreds of twins, three lines."""
    found = audit(*disks(image, "hand"))
    pairs = {tuple(one["topics"]): (one["groups"], one["why"]) for one in found["legal_twins"]}
    wanted = {tuple(sorted(pair)) for pair in truth_of("hand")["legal"]}
    assert set(pairs) == wanted
    assert pairs["copy.source", "source"] == (117, "share")
    assert not {"fan_a", "fan_b", "source", "copy.source", "pair", "tx", "doubled"} & {
        row["topic"] for row in found["misrouted"]
    }


def test_rows_are_the_same_whatever_reads_them(image: Image) -> None:
    """One disk or both replicas, any order, threads, memory: the table and the order of reading decide nothing."""
    both = disks(image, "hand")
    wanted = audit(*both)
    ways: list[tuple[str, ...]] = [
        (both[1], both[0]),
        (both[0],),
        (both[1],),
        (*both, "--jobs", "1"),
        (*both, "--jobs", "8"),
        (*both, "--memory", "1KiB"),
        (*both, "--with", both[0]),
        tuple(random.Random(5).sample([str(one) for one in Path(both[0]).iterdir() if one.is_dir()], 30)),
    ]
    for way in ways:
        assert audit(*way) == wanted, way


def test_homes_on_another_disk_count_and_foreign_batches_there_do_not(image: Image) -> None:
    """Slow partitions were led by one broker, their homes by the other."""
    one, other = disks(image, "stall")
    assert audit(one)["misrouted"] == []
    with_homes = audit(one, "--with", other)
    assert places(with_homes["misrouted"]) == places(audit(one, other)["misrouted"])
    # The provably foreign batch is on the first disk; without evidence, it could be on either.
    assert {row["confidence"] for row in audit(other, "--with", one)["misrouted"]} == {"likely"}


def test_all_forms_of_output_have_the_same_rows(image: Image) -> None:
    """JSON, a line for each, CSV, and text with each foreign partition, its offsets and its home."""
    paths = disks(image, "hand")
    rows = audit(*paths)["misrouted"]
    forms = {
        form: run_klog("audit", "misrouted", *paths, "--output", form).stdout.decode() for form in ("jsonl", "csv")
    }
    assert [json.loads(line) for line in forms["jsonl"].splitlines()] == rows
    table = list(csv.DictReader(io.StringIO(forms["csv"])))
    assert [(row["topic"], row["first_offset"], row["reasons"]) for row in table] == [
        (row["topic"], str(row["first_offset"]), " ".join(row["reasons"])) for row in rows
    ]
    assert [row["home_topic"] for row in table] == [row["home"]["topic"] if row["home"] else "" for row in rows]
    text = run_klog("audit", "misrouted", *paths).stdout.decode()
    for row in rows:
        other = row["home"] or row["twins"][0]
        line = next(
            line
            for line in text.splitlines()
            if f" {row['topic']}-{row['partition']} " in line
            and f" {range_text(row['first_offset'], row['last_offset'])} " in line
        )
        assert (
            f"{other['topic']}-{other['partition']} {range_text(other['first_offset'], other['last_offset'])}" in line
        )
    assert run_klog("audit", "misrouted", *paths).stdout.decode() == text


def test_a_weaker_confidence_than_asked_for_is_left_out(image: Image) -> None:
    """Scripts act on proven rows; the exit code follows the shown ones."""
    rows = audit(*disks(image, "hand"), "--min-confidence", "confirmed")["misrouted"]
    assert len(rows) == 9
    assert {row["confidence"] for row in rows} == {"confirmed"}
    audit(*disks(image, "hand"), "--topic", "fan_?", "--min-confidence", "confirmed", exit_code=0)


CLEAN = {
    "modern": ("modern/data",),
    "legacy": ("legacy/data",),
    "v39": ("v39/data", "v39/data1"),
}
LIKELY: dict[str, dict[Place, Place]] = {
    # programs that set the same timestamps by hand for the same records in several topics
    "modern": {
        ("lz4-broker-0", 117): ("logappend-broker-0", 117),
        ("trimmed-0", 300): ("plain-0", 0),
        ("uncompressed-broker-0", 0): ("plain-0", 20),
        ("uncompressed-broker-0", 20): ("plain-1", 0),
        ("uncompressed-broker-0", 40): ("plain-2", 0),
    },
    # messages of v0, which have no time at all, and of v1 with one that was set by hand
    "legacy": {
        ("v0-none-0", 193): ("changing-0", 13),
        ("v1-none-0", 13): ("changing-0", 103),
        ("v1-none-0", 33): ("changing-0", 123),
        ("v1-none-0", 53): ("changing-0", 143),
        ("v1-none-0", 73): ("changing-0", 163),
    },
}


@pytest.mark.parametrize("archive", ARCHIVES)
def test_no_other_image_has_anything_confirmed(archive: str, image: Image) -> None:
    """All disks of a cluster at once; programs that write the same records again and again give likely rows at most."""
    found = audit(*log_dirs(image(archive)))
    assert [row for row in found["misrouted"] if row["confidence"] != "likely"] == []


@pytest.mark.parametrize("name", CLEAN)
def test_clean_images_have_nothing_confirmed(name: str) -> None:
    """Real clients and brokers wrote them, on purpose with equal timestamps: likely at most, as an honest tool
    reports."""
    found = audit(*(CORPORA / path for path in CLEAN[name]), "--deep")
    assert [row for row in found["misrouted"] if row["confidence"] != "likely"] == []
    assert {place(row): sorted(places(row["twins"]))[0] for row in found["misrouted"]} == LIKELY.get(name, {})
    assert all(row["producer_id"] == -1 and row["reasons"] == ["same-bytes"] for row in found["misrouted"])
    assert [one["why"] for one in found["legal_twins"] if one["topics"] == ["tx", "tx"]] == ["share"]
