"""Topics of another log dir become topics with as many partitions as they have there, and one of each name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from klog.commands.serve.serve_options import ServeOptions
from klog.commands.serve.view import View
from klog.data_dir.partition_identity import IdentityChoice, IdentityError
from klog.formats.follow_file import FollowFile, FollowTopic, write_follow_file

from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch
from tests.support.metadata_logs import MetadataLog, topic, uuid, value
from tests.support.rolled_back import metadata

Run = Callable[..., Ran]
NEW, OLD = uuid(7), uuid(8)


def partition(data: Path, name: str, topic_id: str | None, text: str) -> Path:
    path = data / name
    path.mkdir(parents=True)
    if topic_id is not None:
        (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    records = [Record(i, 1_795_000_000_000, b"k%d" % i, text.encode()) for i in range(3)]
    (path / f"{0:020}.log").write_bytes(batch(records))
    for kind in ("index", "timeindex"):
        (path / f"{0:020}.{kind}").touch()
    return path


def copy(data: Path, topics: Mapping[str, str | None]) -> Path:
    """Write a log dir as `klog follow` leaves it; *topics*: the topic ids of partitions."""
    data.mkdir()
    (data / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=-1\n")
    for name, topic_id in topics.items():
        partition(data, name, topic_id, name)
    return data


def names(data: Path) -> list[str]:
    return sorted(path.name for path in data.iterdir() if path.is_dir())


# partitions

SEVERAL = {f"many-{n}": NEW for n in range(4)} | {"one-0": OLD, "two-0": uuid(9), "two-1": uuid(9)}


def test_each_topic_has_as_many_partitions_as_it_had(klog: Run, tmp_path: Path) -> None:
    """A key of a topic with one partition must not go elsewhere because another topic has four."""
    source = copy(tmp_path / "source", SEVERAL)
    assert klog("write", source, "--to", tmp_path / "new").exit_code == 0
    assert names(tmp_path / "new") == sorted(SEVERAL)


def test_a_given_number_holds_for_all(klog: Run, tmp_path: Path) -> None:
    """A given number is meant."""
    source = copy(tmp_path / "source", SEVERAL)
    assert klog("write", source, "--to", tmp_path / "new", "--partitions", "5").exit_code == 0
    assert names(tmp_path / "new") == [f"{name}-{n}" for name in ("many", "one", "two") for n in range(5)]


def test_one_topic_for_all_has_room_for_each(klog: Run, tmp_path: Path) -> None:
    """--topic: partitions keep their numbers."""
    source = copy(tmp_path / "source", SEVERAL)
    assert klog("write", source, "--to", tmp_path / "new", "--topic", "all").exit_code == 0
    assert names(tmp_path / "new") == [f"all-{n}" for n in range(4)]


def test_several_log_dirs_of_one_topic_add_up(klog: Run, tmp_path: Path) -> None:
    """A broker with two log dirs has some partitions in each."""
    first = copy(tmp_path / "first", {"orders-0": NEW})
    second = copy(tmp_path / "second", {"orders-2": NEW, "one-0": OLD})
    assert klog("write", first, second, "--to", tmp_path / "new").exit_code == 0
    assert names(tmp_path / "new") == ["one-0", "orders-0", "orders-1", "orders-2"]


@pytest.mark.parametrize("topic_id", [NEW, OLD])
def test_the_metadata_log_says_how_many_there_are(klog: Run, tmp_path: Path, topic_id: str) -> None:
    """One log dir may have few of a topic's partitions; metadata about another topic of that name prove nothing."""
    log = MetadataLog(tmp_path / "source")
    log.add(topic("orders", 7), *(value("Partition", topicId=NEW, partitionId=n, replicas=[1]) for n in range(6)))
    partition(tmp_path / "source", "orders-1", topic_id, "orders")
    assert klog("write", tmp_path / "source", "--to", tmp_path / "new").exit_code == 0
    assert len(names(tmp_path / "new")) == (6 if topic_id == NEW else 2)


def test_a_copy_knows_how_many_there_are(klog: Run, tmp_path: Path) -> None:
    """`klog follow --partition` copies some."""
    source = copy(tmp_path / "source", {"orders-1": NEW, "one-0": OLD})
    known = FollowFile("x", "b:9092", "2026", {"orders": FollowTopic(NEW, 3, {})}, {})
    (source / "klog-follow.json").write_bytes(write_follow_file(known))
    assert klog("write", source, "--to", tmp_path / "new").exit_code == 0
    assert names(tmp_path / "new") == ["one-0", "orders-0", "orders-1", "orders-2"]


# two topics of one name

MIXED = {"orders-0": NEW, "orders-1": OLD, "orders-2": OLD, "other-0": uuid(9)}


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A copy in which an older klog left partitions of a topic that was created again with fewer."""
    return copy(tmp_path / "mixed", MIXED)


def refused(ran: Ran, advice: str) -> None:
    """See that nothing was read, and that both topics and their places are named."""
    assert (ran.exit_code, ran.stdout) == (8, b"")
    said = ran.stderr.decode()
    assert f"orders is two things: topic {NEW} of cluster x in " in said
    assert f"topic {OLD} of cluster x in " in said
    assert said.rstrip().endswith(advice)


CHOOSES = "--cluster ID or --topic-id ID chooses"
READERS = {
    "search": ("search", "--key", "k1"),
    "keys check": ("keys", "check"),
    "export": ("export", "--to", "{out}", "--output", "jsonl"),
}


@pytest.mark.parametrize("words", READERS.values(), ids=READERS.keys())
def test_no_reader_makes_one_topic_of_two(klog: Run, mixed: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Old records are none of the new topic; an id chooses, and a topic that is one thing is read as ever."""

    def run(*options: str) -> Ran:
        out = tmp_path / "out" / "-".join(options)
        return klog(*(word.format(out=out) for word in words), mixed, *options)

    refused(run(), CHOOSES)
    for chosen in (("--topic-id", NEW), ("--topic", "other")):
        ran = run(*chosen)
        assert ran.exit_code in (0, 4), ran.stderr
        assert b"two things" not in ran.stderr


def test_serve_shows_no_topic_of_two(mixed: Path) -> None:
    """A client asks by name, and by one id."""
    with pytest.raises(IdentityError, match=f"orders is two things: topic {NEW} .* --topic-id ID chooses"):
        View.open([str(mixed)])
    with View.open([str(mixed)], ServeOptions(identity=IdentityChoice(topic_ids=(OLD,)))) as view:
        assert {name: sorted(found.copies) for name, found in view.topics.items()} == {"orders": [1, 2]}


@pytest.mark.parametrize("to", ["new", "there"])
def test_write_makes_no_topic_of_two(klog: Run, mixed: Path, tmp_path: Path, to: str) -> None:
    """Into a new log dir and into one that is there; the directories of one of them can be named."""
    data = tmp_path / to
    if to == "there":
        copy(data, {f"orders-{n}": uuid(1) for n in range(3)})
    refused(klog("write", mixed, "--to", data), "name the partition directories of one of them")
    refused(klog("write", mixed / "orders-0", mixed / "orders-1", "--to", data, "--topic", "orders"),
            "name the partition directories of one of them")  # fmt: skip
    ran = klog("write", mixed / "orders-1", mixed / "orders-2", "--to", data)
    assert ran.exit_code == 0, ran.stderr


def test_commands_that_answer_for_each_directory_go_on(klog: Run, mixed: Path) -> None:
    """They identify themselves, and add nothing up."""
    rows = json.loads(klog("stats", mixed, "--output", "json").stdout)
    assert {row["path"].rpartition("/")[2]: row["topic_id"] for row in rows} == MIXED
    assert klog("dump", mixed / "orders-1", "--output", "jsonl").exit_code == 0
    assert klog("verify", mixed).exit_code in (0, 4)


@pytest.mark.parametrize(
    "topics",
    [
        {"orders-0": NEW, "orders-1": NEW},
        {"orders-0": NEW, "orders-1": None},
        {"orders-0": None, "orders-1": None},
        {"orders-0": NEW, "invoices-0": OLD},
        {"orders-0": NEW, f"orders-1.{'0' * 32}-stray": OLD},
        {"orders-0": NEW, f"orders-1.{'0' * 32}-delete": OLD},
    ],
)
def test_one_topic_is_read_as_ever(klog: Run, tmp_path: Path, topics: Mapping[str, str | None]) -> None:
    """The cases: equal or unknown ids, different names, and directories that a broker has set aside."""
    source = copy(tmp_path / "source", topics)
    assert klog("search", source, "--key", "k1").exit_code == 0
    assert klog("write", source, "--to", tmp_path / "new").exit_code == 0
    View.open([str(source)]).close()


@pytest.mark.usefixtures("hasty")
def test_adopt_makes_no_topic_of_two(klog: Run, mixed: Path, tmp_path: Path) -> None:
    """A whole copy is written as the topics that it has; a directory that is named is written under its name."""
    log = metadata(tmp_path / "data", 0, 0)
    log.add(value("Partition", topicId=NEW, partitionId=1, replicas=[1], isr=[1], leader=1, directories=[uuid(101)]))
    refused(klog("adopt", mixed, "--to", tmp_path / "data"), "name the partition directories of one of them")
    for place in (mixed / "orders-1", mixed / "orders-0"):
        assert klog("adopt", place, "--to", tmp_path / "data").exit_code == 0
    other = klog("adopt", mixed, "--to", tmp_path / "data", "--topic", "other")
    assert b"topic-unknown" in other.stdout


@pytest.mark.parametrize("command", ["groups", "transactions"])
def test_an_id_leaves_the_coordinators_topics_in(klog: Run, mixed: Path, command: str) -> None:
    """A topic that is two things must not be in the way of the groups; its id chooses, and they are read."""
    partition(mixed, "__consumer_offsets-0", uuid(20), "x")
    partition(mixed, "__transaction_state-0", uuid(21), "x")
    refused(klog(command, mixed), CHOOSES)
    ran = klog(command, mixed, "--topic-id", NEW)
    assert ran.exit_code != 8, ran.stderr
    assert b"3 of 6 partition directories are of other ids" in ran.stderr
