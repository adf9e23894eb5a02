"""Which twins are legal and which are not: shares, runs, groups; planted batches in random clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from klog.commands.audit.twins import FEWEST_MANY, FEWEST_SHARED, SHARE, SHARE_OF_MANY, SHORTEST_RUN, is_legal_share

from tests.commands.audit.auditing import audit, place, places
from tests.commands.audit.clusters import Cluster, changed
from tests.support.samples import sampled

NAMES = ("orders-0", "orders-1", "orders-2", "payments-0", "payments-1", "clicks-0")


def random_cluster(seed: int) -> Cluster:
    """Return a clean cluster: some programs write at random to partitions of three topics."""
    made = Cluster(seed)
    producers = [-1, *made.random.sample(range(1000, 9000), 3)]
    for name in NAMES:
        made.add(name)
    for _ in range(made.random.randrange(30, 80)):
        made.add(
            made.random.choice(NAMES),
            made.random.choice(producers),
            codec=made.random.choice(("none", "none", "gzip", "lz4")),
        )
    return made


@pytest.mark.parametrize("seed", sampled(range(220), 11))
def test_a_batch_in_a_second_partition_is_found_and_a_changed_one_is_not(seed: int, tmp_path: Path) -> None:
    """Copied as it is: the right pair.  With one byte changed and a checksum that fits: nothing."""
    made = random_cluster(seed)
    assert audit(made.write(tmp_path / "clean"))["misrouted"] == []
    home = made.random.choice(NAMES)
    at = made.random.randrange(len(made.partitions[home]))
    abroad = made.random.choice([name for name in NAMES if name != home])
    data = made.partitions[home][at]
    foreign = made.end(abroad)
    made.put(abroad, data)
    for _ in range(made.random.randrange(4)):
        made.add(abroad)
    (row,) = audit(made.write(tmp_path / "planted", segments=made.random.randrange(1, 4)))["misrouted"]
    pair = {(home, made.offset(home, at)), (abroad, foreign)}
    assert {place(row), *places(row["twins"])} == pair
    if row["home"] is not None:
        assert (place(row), place(row["home"])) == ((abroad, foreign), (home, made.offset(home, at)))

    other = random_cluster(seed)
    byte = other.random.randrange(22, len(data))
    other.put(abroad, changed(data, byte))
    assert audit(other.write(tmp_path / "changed"))["misrouted"] == [], f"byte {byte}"


def legal(found: dict[str, Any]) -> list[tuple[str, str, int, str]]:
    """Return the legal twins: topics, groups, why."""
    return [(*one["topics"], one["groups"], one["why"]) for one in found["legal_twins"]]


@pytest.mark.parametrize(
    ("groups", "batches", "is_legal"),
    [
        (FEWEST_SHARED - 1, FEWEST_SHARED - 1, False),
        (FEWEST_SHARED, int(FEWEST_SHARED / SHARE), True),
        (FEWEST_SHARED, int(FEWEST_SHARED / SHARE) + 1, False),
        (FEWEST_MANY - 1, int((FEWEST_MANY - 1) / SHARE_OF_MANY), False),
        (FEWEST_MANY, int(FEWEST_MANY / SHARE_OF_MANY), True),
        (FEWEST_MANY, int(FEWEST_MANY / SHARE_OF_MANY) + 1, False),
    ],
)
@pytest.mark.parametrize("other", ["b-0", "a-1"])
def test_shares_just_below_and_above_the_limits(
    groups: int, batches: int, is_legal: bool, other: str, tmp_path: Path
) -> None:
    """The smaller of two topics counts; a topic with itself is a pair, too."""
    assert is_legal_share(groups, batches) == is_legal
    made = Cluster()
    own, of_other = ("a-0", other)
    between = 0
    for i in range(groups):
        made.put(of_other, made.add(own))
        if i % 2 == 0 and between < batches - groups - (other == "a-1") * groups:
            made.add(own)
            between += 1
    total = 2 * groups + between if other == "a-1" else groups + between
    for _ in range(batches - total):
        made.add(own)
    if other == "b-0":  # the other topic is larger
        for _ in range(batches):
            made.add("b-1")
    found = audit(made.write(tmp_path / "data"))
    if total <= batches:
        topics = ("a", "b") if other == "b-0" else ("a", "a")
        shared = [one for one in legal(found) if one[3] == "share"]
        assert shared == ([(*topics, groups, "share")] if is_legal else [])


@pytest.mark.parametrize("length", [1, 2, SHORTEST_RUN, 20])
def test_twins_side_by_side_are_legal_from_three_on(length: int, tmp_path: Path) -> None:
    """A program wrote both for a while; a misrouted batch is single."""
    made = Cluster(3)
    for _ in range(300):
        made.add("a-0")
        made.add("b-0")
    for _ in range(min(length, 19)):  # a run of 20 would be legal by its share as well
        made.put("b-0", made.add("a-0"))
    if length > 19:
        made.put("b-0", made.add("a-0"))
    for _ in range(9):
        made.add("a-0")
        made.add("b-0")
    found = audit(made.write(tmp_path / "data"))
    assert len(found["misrouted"]) == (length if length < SHORTEST_RUN else 0)
    assert legal(found) == ([] if length < SHORTEST_RUN else [("a", "b", length, "run")])


def test_neighbours_in_another_order_are_no_run(tmp_path: Path) -> None:
    """The same three batches, the other way round: no program writes like that."""
    made = Cluster(4)
    for _ in range(40):
        made.add("a-0")
        made.add("b-0")
    for data in reversed([made.add("a-0") for _ in range(3)]):
        made.put("b-0", data)
    assert len(audit(made.write(tmp_path / "data"))["misrouted"]) == 3


@pytest.mark.parametrize("wrong", [2, 3])
def test_one_batch_in_several_wrong_places(wrong: int, tmp_path: Path) -> None:
    """One buffer, several expired requests: every wrong place has a row of its own, with one home."""
    made = Cluster(5)
    for name in ("home-0", *(f"t{i}-0" for i in range(wrong))):
        for _ in range(40):
            made.add(name, 7 if name == "home-0" else -1)
    data = made.add("home-0", 7)
    for i in range(wrong):
        made.put(f"t{i}-0", data)
    rows = audit(made.write(tmp_path / "data"))["misrouted"]
    assert [(row["topic"], row["confidence"], place(row["home"])) for row in rows] == [
        (f"t{i}", "confirmed", ("home-0", made.offset("home-0", 40))) for i in range(wrong)
    ]
    assert all(len(row["twins"]) == wrong for row in rows)


def test_beside_two_legal_copies_the_third_place_is_foreign(tmp_path: Path) -> None:
    """A mirror has the batch, too: of three places two explain each other."""
    made = Cluster(6)
    for _ in range(30):
        made.put("copy-0", made.add("source-0"))
        made.add("other-0")
    made.put("other-0", made.partitions["source-0"][11])
    found = audit(made.write(tmp_path / "data"))
    (row,) = found["misrouted"]
    assert (place(row), row["confidence"]) == (("other-0", made.offset("other-0", 30)), "likely")
    assert row["home"]["topic"] in ("copy", "source")
    assert places(row["twins"]) == {(name, made.offset(name, 11)) for name in ("copy-0", "source-0")}
    assert legal(found) == [("copy", "source", 30, "share")]


def test_the_same_batch_twice_in_one_partition_is_no_misrouted_one(tmp_path: Path) -> None:
    """A producer without idempotence sent again: another finding."""
    made = Cluster(7)
    for _ in range(5):
        data = made.add("a-0")
    made.put("a-0", data)
    made.add("b-0")
    found = audit(made.write(tmp_path / "data"))
    assert (found["misrouted"], found["legal_twins"]) == ([], [])


def test_below_the_log_start_a_batch_is_a_twin_and_no_finding(tmp_path: Path) -> None:
    """Records were deleted there, and the segment still has them: they are not served, but they prove where home is."""
    made = Cluster(8)
    for name in ("a-0", "b-0"):
        for _ in range(10):
            made.add(name, records=1)
    made.put("b-0", made.partitions["a-0"][4])
    root = made.write(tmp_path / "data")
    assert [place(row) for row in audit(root)["misrouted"]] == [("b-0", 10)]
    (root / "log-start-offset-checkpoint").write_text("0\n1\na 0 5\n")
    assert [place(row) for row in audit(root)["misrouted"]] == [("b-0", 10)]
    (root / "log-start-offset-checkpoint").write_text("0\n2\na 0 5\nb 0 11\n")
    assert audit(root)["misrouted"] == []
