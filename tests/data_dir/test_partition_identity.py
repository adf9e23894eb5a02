"""Which directories are copies of one partition."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.base.errors import UsageError
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import (
    IdentityChoice,
    IdentityError,
    PartitionIdentity,
    are_copies,
    choose_identity,
    group_copies,
    identity_of,
)

TOPIC, OTHER_TOPIC = "PzrBv7lASuWmpPcXNQyJWg", "9aXkBv7lASuWmpPcXNQyJQ"
CLUSTER, OTHER_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg", "QwU3OEVBNTcwNTJENDM2Qg"


def directory(
    base: Path, log_dir: str, topic_id: str | None, cluster_id: str | None, name: str = "orders-3"
) -> Partition:
    """A partition directory as a broker leaves it, with the known facts."""
    place = base / log_dir / name
    place.mkdir(parents=True)
    (place / "00000000000000000000.log").touch()
    if topic_id is not None:
        (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    if cluster_id is not None:
        properties = f"version=1\nnode.id=1\ncluster.id={cluster_id}\n"
        (base / log_dir / "meta.properties").write_text(properties)
    return Partition(str(place))


# The facts about the first, about the second, whether they are copies, and by their names.
PAIRS = [
    ((TOPIC, CLUSTER), (TOPIC, CLUSTER), True, True),
    ((TOPIC, CLUSTER), (TOPIC, OTHER_CLUSTER), False, False),
    ((TOPIC, CLUSTER), (OTHER_TOPIC, CLUSTER), False, False),
    ((TOPIC, None), (TOPIC, CLUSTER), True, True),
    ((None, CLUSTER), (None, CLUSTER), True, True),
    ((None, CLUSTER), (TOPIC, CLUSTER), True, True),
    ((TOPIC, None), (OTHER_TOPIC, None), False, False),
    ((None, None), (None, None), False, True),
    ((TOPIC, CLUSTER), (None, None), False, True),
    ((TOPIC, None), (None, CLUSTER), False, True),
]


@pytest.mark.parametrize(("one", "other", "copies", "by_name"), PAIRS)
def test_which_are_copies(
    one: tuple[str | None, str | None], other: tuple[str | None, str | None], copies: bool, by_name: bool
) -> None:
    """Nothing speaks against it, and something for it; a name alone counts only when that is asked for."""
    for first, second in permutations((PartitionIdentity(*one), PartitionIdentity(*other))):
        assert are_copies(first, second) is copies
        assert are_copies(first, second, by_name=True) is by_name


def test_the_files_say_it(tmp_path: Path) -> None:
    assert identity_of(directory(tmp_path, "b1", TOPIC, CLUSTER)) == (TOPIC, CLUSTER)
    assert identity_of(directory(tmp_path, "b2", None, None)) == (None, None)


def test_the_metadata_log_has_one_topic_id_everywhere(tmp_path: Path) -> None:
    """Else the metadata logs of two clusters would be copies."""
    everywhere = "AAAAAAAAAAAAAAAAAAAAAQ"
    logs = [
        directory(tmp_path, f"b{number}", everywhere, cluster, "__cluster_metadata-0")
        for number, cluster in enumerate((CLUSTER, OTHER_CLUSTER))
    ]
    assert identity_of(logs[0]) == (None, CLUSTER)
    with pytest.raises(IdentityError):
        group_copies(logs)


def test_two_things_of_one_name_are_refused_with_their_ids_and_places(tmp_path: Path) -> None:
    ours = directory(tmp_path, "b1", TOPIC, CLUSTER)
    other = directory(tmp_path, "other", OTHER_TOPIC, OTHER_CLUSTER)
    alone = directory(tmp_path, "b1", TOPIC, CLUSTER, "orders-4")
    with pytest.raises(IdentityError) as raised:
        group_copies([ours, other, alone])
    assert str(raised.value) == (
        f"orders-3 is two things: topic {TOPIC} of cluster {CLUSTER} in {ours.path}, "
        f"topic {OTHER_TOPIC} of cluster {OTHER_CLUSTER} in {other.path}; --cluster ID or --topic-id ID chooses"
    )


def test_each_name_has_its_line(tmp_path: Path) -> None:
    partitions = [
        directory(tmp_path, log_dir, topic_id, CLUSTER, name)
        for log_dir, topic_id in (("b1", TOPIC), ("b2", OTHER_TOPIC))
        for name in ("orders-0", "orders-1")
    ]
    with pytest.raises(IdentityError) as raised:
        group_copies(partitions)
    assert [line.split()[0] for line in str(raised.value).splitlines()] == ["orders-0", "orders-1"]


@pytest.mark.parametrize(("names", "last"), [(10, "orders-9"), (11, "1 more name"), (13, "3 more names")])
def test_a_refusal_is_no_longer_than_a_screen(tmp_path: Path, names: int, last: str) -> None:
    """Two clusters have thousands of names in common, and three places show where to look."""
    partitions = [
        directory(tmp_path, f"b{number}", topic_id, CLUSTER, f"orders-{name}")
        for number, topic_id in enumerate([TOPIC] * 5 + [OTHER_TOPIC])
        for name in range(names)
    ]
    with pytest.raises(IdentityError) as raised:
        group_copies(partitions)
    lines = str(raised.value).splitlines()
    assert (len(lines), lines[-1].startswith(last)) == (min(names, 11), True)
    places = ", ".join(str(tmp_path / f"b{number}" / "orders-0") for number in range(3))
    assert f"in {places} and 2 more, topic {OTHER_TOPIC}" in lines[0]


def test_where_nothing_is_known_only_the_name_can_count(tmp_path: Path) -> None:
    """Kafka before 2.8 wrote no topic id, and a directory that was copied has no log dir around it."""
    found = [directory(tmp_path, f"b{number}", None, None) for number in (1, 2)]
    with pytest.raises(IdentityError, match=r"orders-3 exists 2 times, and no file has .* --by-name takes"):
        group_copies(found)
    assert group_copies(found, IdentityChoice(by_name=True)) == [found]


def test_advice_has_the_names_of_the_options_where_they_are_given(tmp_path: Path) -> None:
    found = [directory(tmp_path, "b1", TOPIC, CLUSTER), directory(tmp_path, "b2", OTHER_TOPIC, CLUSTER)]
    with pytest.raises(IdentityError, match=r"; cluster or topicId chooses$"):
        group_copies(found, IdentityChoice(options=("cluster", "topicId", "byName")))


def test_what_is_known_to_differ_is_never_taken_for_the_same(tmp_path: Path) -> None:
    found = [directory(tmp_path, "b1", TOPIC, CLUSTER), directory(tmp_path, "b2", OTHER_TOPIC, CLUSTER)]
    with pytest.raises(IdentityError):
        group_copies(found, IdentityChoice(by_name=True))


def test_the_unknown_between_two_that_differ_hides_nothing(tmp_path: Path) -> None:
    """Each is a copy of the one in the middle, but not of each other."""
    found = [
        directory(tmp_path, "b1", TOPIC, CLUSTER),
        directory(tmp_path, "b2", None, CLUSTER),
        directory(tmp_path, "b3", OTHER_TOPIC, CLUSTER),
    ]
    for order in permutations(found):
        with pytest.raises(IdentityError, match=r"three things: .* where ids are unknown$"):
            group_copies(order)
        with pytest.raises(IdentityError, match=r"three things: .* chooses$"):
            group_copies(order, IdentityChoice(by_name=True))
    assert group_copies(found[:2]) == [found[:2]]


def test_a_choice_leaves_the_others_out(tmp_path: Path) -> None:
    ours, other = directory(tmp_path, "b1", TOPIC, CLUSTER), directory(tmp_path, "b2", TOPIC, OTHER_CLUSTER)
    unknown = directory(tmp_path, "b3", TOPIC, None)
    every = [ours, other, unknown]
    kept, note = choose_identity(every, IdentityChoice([CLUSTER]))
    assert kept == [ours]
    assert note == "2 of 3 partition directories are of other ids: left out"
    assert choose_identity(every, IdentityChoice([CLUSTER], by_name=True))[0] == [ours, unknown]
    assert choose_identity(every, IdentityChoice(topic_ids=[TOPIC])) == (every, None)
    assert choose_identity(every, IdentityChoice()) == (every, None)
    assert choose_identity(every, IdentityChoice([CLUSTER, OTHER_CLUSTER]))[0] == [ours, other]


def test_an_id_that_nothing_has_is_a_wrong_option(tmp_path: Path) -> None:
    ours = directory(tmp_path, "b1", TOPIC, CLUSTER)
    with pytest.raises(UsageError, match=f"no cluster has the id {CLUSTER[:-1]}; did you mean {CLUSTER}"):
        choose_identity([ours], IdentityChoice([CLUSTER[:-1]]))
    with pytest.raises(UsageError, match="no topic has the id x"):
        choose_identity([ours], IdentityChoice(topic_ids=["x"]))


IDS = st.sampled_from([None, "a", "b"])
IDENTITIES = st.builds(PartitionIdentity, IDS, IDS)


@given(IDENTITIES, IDENTITIES)
def test_being_copies_goes_both_ways(one: PartitionIdentity, other: PartitionIdentity) -> None:
    assert are_copies(one, other) == are_copies(other, one)
    if are_copies(one, other):
        assert are_copies(one, other, by_name=True)
