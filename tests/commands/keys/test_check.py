"""`klog keys check`: rules, misplaced keys and why they may lie there, against plain Python and real brokers."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.kernel import KeyExamples, KeyPlaces, KeyReader

from tests.cluster.partitioning import plain
from tests.commands.keys.placing import Placed, agrees, batch, by_rule, check, run, verdict, write_topic
from tests.conftest import CORPORA, FIXTURES, run_klog
from tests.kernel.windows import filled
from tests.oracles.plain.encode import Record, marker
from tests.support.examples import examples
from tests.support.identities import CLUSTER, OTHER_CLUSTER, TOPIC

KEYS = FIXTURES / "replicas" / "keys" / "broker-1"


def users(count: int, start: int = 0) -> list[bytes]:
    return [b"user-%d" % (start + i) for i in range(count)]


# what real brokers acknowledged


@pytest.mark.corpora
def test_the_corpus_of_a_real_broker_is_judged_as_its_truth_says(image: Any) -> None:
    """Rules, counts, the growth from three partitions, fifteen keys that no partitioner placed."""
    with gzip.open(CORPORA / "replicas" / "keys.truth.json.gz") as file:
        truth = json.load(file)
    placed: dict[str, list[Placed]] = {name: [] for name in truth["partitions"]}
    for name, partition, _, key in truth["sent"]:
        placed[name].append((None if key is None else bytes.fromhex(key), partition))
    rows = check(image("replicas/keys.tar.xz") / "broker-1", exit_code=4)
    assert set(rows) == set(truth["partitions"])
    for name, partitions in truth["partitions"].items():
        assert (rows[name]["partitions"], rows[name]["partitions_from"]) == (partitions, "metadata")
        agrees(rows[name], verdict(placed[name], partitions, grown=(3,) if name == "grown" else ()))
    found = {name: row["misplaced"] for name, row in rows.items()}
    assert {name: row["rule"] for name, row in rows.items()} == {
        "java6": "java",
        "grown": "java",
        "two": "librdkafka",
        "byhand": "java",
        "sarama": "fnv1a",
        "few": None,
        "none": None,
    }
    assert found["grown"]["grown_from"] == {"3": 140}
    assert (found["byhand"]["keys"], found["byhand"]["none"]) == (15, 15)
    assert found["two"]["another_rule"] == {"java": 11}
    assert [name for name in found if found[name]["keys"]] == [
        name for name in ("byhand", "grown", "two") if name in found
    ]


@pytest.mark.corpora
def test_every_listed_key_is_where_the_broker_put_it(image: Any) -> None:
    """The second look finds the key, its records there, the first and the last of them."""
    with gzip.open(CORPORA / "replicas" / "keys.truth.json.gz") as file:
        sent = json.load(file)["sent"]
    offsets: dict[tuple[str, int, str | None], list[int]] = {}
    for name, partition, offset, key in sent:
        offsets.setdefault((name, partition, key), []).append(offset)
    rows = check(image("replicas/keys.tar.xz") / "broker-1", "--list", "1000")
    for name, row in rows.items():
        assert len(row["examples"]) == row["misplaced"]["keys"]
        for one in row["examples"]:
            key = bytes_of(one)
            there = offsets[name, one["partition"], key.hex()]
            assert (one["records"], one["first_offset"], one["last_offset"]) == (len(there), min(there), max(there))
            assert one["expected"] == plain.partition(row["rule"], key, row["partitions"])


def bytes_of(one: dict[str, Any]) -> bytes:
    import base64

    return one["key"].encode() if "key" in one else base64.b64decode(one["key_base64"])


# against plain Python

SMALL_KEYS = st.one_of(
    st.integers(0, 60).map(lambda i: b"key-%d" % i),
    st.binary(min_size=1, max_size=12),
    st.binary(min_size=1, max_size=6).map(lambda rest: b"\0\0\0\0\7" + rest),
)


@given(data=st.data())
@examples(60)
def test_any_placing_is_judged_as_plain_python_does(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Keys of every shape, by rule, by another rule, without a frame, anywhere, in several partitions."""
    n = data.draw(st.sampled_from([2, 3, 4, 5, 7, 8, 12]))
    rule = data.draw(st.sampled_from(list(plain.RULES)))
    keys = data.draw(st.lists(SMALL_KEYS, min_size=1, max_size=60))
    placed: list[Placed] = []
    for key in keys:
        how = data.draw(st.sampled_from(["rule"] * 12 + ["other", "unframed", "anywhere", "both"]))
        home = plain.partition(rule, key, n)
        if how == "other":
            home = plain.partition(data.draw(st.sampled_from(list(plain.RULES))), key, n)
        elif how == "unframed" and len(key) > 5:
            home = plain.partition(rule, key[5:], n)
        elif how in ("anywhere", "both"):
            placed += [(key, home)] if how == "both" else []
            home = data.draw(st.integers(0, n - 1))
        placed += [(key, home)] * data.draw(st.integers(1, 2))
    placed += [(None, data.draw(st.integers(0, n - 1)))] * data.draw(st.integers(0, 2))
    folder = tmp_path_factory.mktemp("placed")
    write_topic(folder, "t", placed)
    row = check(folder, "--partitions", str(n), "--min-keys", "10")["t"]
    said = verdict(placed, n, min_keys=10)
    if said["misplaced"]["keys"] >= 20:
        return  # enough of them to look like growth, which has tests of its own
    agrees(row, said)
    shutil.rmtree(folder)


@pytest.mark.parametrize("before", [(3,), (5,), (3, 6), (3, 5, 8)], ids=str)
@pytest.mark.parametrize("rule", ["java", "librdkafka", "fnv1a", "murmur2-unsigned"])
def test_a_topic_that_grew_is_known_by_how_many_partitions_it_had(
    tmp_path: Path, rule: str, before: tuple[int, ...]
) -> None:
    """Also one that grew several times: each number explains keys that the others do not."""
    placed: list[Placed] = []
    for number, count in enumerate(before):
        placed += by_rule(rule, users(150, 1000 * number), count)
    placed += by_rule(rule, users(700, 10_000), 12)
    row = check(write_topic(tmp_path, "t", placed), "--partitions", "12", exit_code=4)["t"]
    assert row["rule"] == rule
    assert sorted(map(int, row["misplaced"]["grown_from"])) == sorted(before)
    assert row["misplaced"]["keys"] == sum(row["misplaced"]["grown_from"].values())
    counts = [int(count) for count in row["misplaced"]["grown_from"]]
    agrees(row, verdict(placed, 12, grown=counts))


def test_nineteen_misplaced_keys_are_too_few_to_say_that_a_topic_grew(tmp_path: Path) -> None:
    """A handful of keys agrees with some smaller number by chance."""
    grown = [one for one in by_rule("java", users(300), 3) if one[1] != plain.partition("java", one[0] or b"", 6)]
    for count in (19, 20):
        data = write_topic(tmp_path / str(count), "t", [*by_rule("java", users(300, 1000), 6), *grown[:count]])
        found = check(data, "--partitions", "6")["t"]["misplaced"]
        assert (found["keys"], found["grown_from"]) == (count, {"3": count} if count == 20 else {})


@pytest.mark.parametrize("second", ["librdkafka", "fnv1a"])
def test_what_a_second_client_places_is_not_taken_for_growth(tmp_path: Path, second: str) -> None:
    """A smaller number of partitions explains some of it as well, by chance."""
    placed = [*by_rule("java", users(600), 6), *by_rule(second, users(200, 1000), 6)]
    row = check(write_topic(tmp_path, "t", placed), "--partitions", "6")["t"]
    agrees(row, verdict(placed, 6))
    assert row["misplaced"]["grown_from"] == {}
    assert row["misplaced"]["another_rule"] == {second: row["misplaced"]["keys"]}


def test_a_topic_that_begins_with_another_hash_than_it_goes_on_is_judged_alike(tmp_path: Path) -> None:
    """The table keeps one of three hashes, chosen by the first records; where it chose wrong, it is filled again."""
    placed = [*by_rule("java", users(400), 7), *by_rule("fnv1a", users(2000, 1000), 7), (b"astray", 0), (b"lost", 5)]
    placed = sorted(placed, key=lambda one: one[1])
    for name, order in (("first", placed), ("last", placed[::-1])):
        row = check(write_topic(tmp_path / name, "t", order), "--partitions", "7")["t"]
        agrees(row, verdict(placed, 7))
        assert row["rule"] == "fnv1a"


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_where_two_rules_agree_on_every_key_the_usual_client_is_named(tmp_path: Path, n: int) -> None:
    """With a power of two the mask makes no difference."""
    placed = by_rule("murmur2-unsigned", users(400), n)
    row = check(write_topic(tmp_path, "t", placed), "--partitions", str(n))["t"]
    assert (row["rule"], row["rules"]["java"], row["rules"]["murmur2-unsigned"]) == ("java", 400, 400)


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_keys_that_lie_anywhere_follow_no_rule(tmp_path: Path, n: int) -> None:
    """One partition proves nothing, and with two each rule has half of the keys by chance."""
    chance = random.Random(n)
    placed: list[Placed] = [(key, chance.randrange(n)) for key in users(1000)]
    row = check(write_topic(tmp_path, "t", placed), "--partitions", str(n), exit_code=0)["t"]
    agrees(row, verdict(placed, n))
    assert row["rule"] is None


@pytest.mark.parametrize(("placed_by_it", "rule"), [(360, None), (480, "java")])
def test_a_rule_is_named_from_half_of_the_keys_on(tmp_path: Path, placed_by_it: int, rule: str | None) -> None:
    """More keys than chance explains are not yet a client that places them."""
    chance = random.Random(3)
    rest: list[Placed] = [(key, chance.randrange(20)) for key in users(900 - placed_by_it, 5000)]
    placed = [*by_rule("java", users(placed_by_it), 20), *rest]
    row = check(write_topic(tmp_path, "t", placed), "--partitions", "20")["t"]
    agrees(row, verdict(placed, 20))
    assert row["rule"] == rule


def test_a_key_hashed_without_its_schema_id_is_told(tmp_path: Path) -> None:
    """Some clients place the key that the application gave, and write the framed one."""
    framed = [b"\0\0\0\0\7" + key for key in users(10)]
    placed = by_rule("java", users(300, 100), 9)
    placed += [(key, plain.partition("java", key[5:], 9)) for key in framed]
    row = check(write_topic(tmp_path, "t", placed), "--partitions", "9")["t"]
    agrees(row, verdict(placed, 9))
    assert row["misplaced"]["unframed"] >= 5
    assert {one["why"] for one in row["examples"]} >= {"unframed"}


@pytest.mark.parametrize(("rule", "judged"), [("java", True), ("librdkafka", False), ("fnv1a", True)])
def test_the_empty_key_is_judged_only_where_the_client_hashes_it(tmp_path: Path, rule: str, judged: bool) -> None:
    """librdkafka's default puts it anywhere."""
    home = plain.partition(rule, b"", 5)
    placed: list[Placed] = [*by_rule(rule, users(300), 5), (b"", home), *[(b"", (home + 1) % 5)] * 3]
    row = check(write_topic(tmp_path, "t", placed), "--partitions", "5", exit_code=4 if judged else 0)["t"]
    assert (row["keys"], row["empty_keys"]) == (300, 4)
    assert (row["misplaced"]["keys"], row["misplaced"]["records"]) == ((1, 3) if judged else (0, 0))
    if judged:
        (one,) = row["examples"]
        assert (one["key"], one["partition"], one["expected"], one["records"]) == ("", (home + 1) % 5, home, 3)


# the input


@pytest.mark.parametrize(
    ("codec", "magic"),
    [*((codec, magic) for codec in ("none", "gzip", "snappy", "lz4") for magic in (0, 1, 2)), ("zstd", 2)],
)
def test_every_format_and_codec_is_read(tmp_path: Path, codec: str, magic: int) -> None:
    placed = [*by_rule("java", users(300), 7), (b"astray", 1), (b"lost", 2), (None, 3)]
    row = check(write_topic(tmp_path, "t", placed, codec=codec, magic=magic), "--partitions", "7", exit_code=4)["t"]
    agrees(row, verdict(placed, 7))


def test_markers_do_not_count_and_aborted_records_do(tmp_path: Path) -> None:
    """A marker's key is four bytes of its type; who placed an aborted record is the same client as ever."""
    placed = by_rule("java", users(300), 3)
    write_topic(tmp_path, "t", placed)
    home = plain.partition("java", b"aborted", 3)
    log = tmp_path / f"t-{home}" / f"{0:020d}.log"
    end = sum(at == home for _, at in placed)
    content = batch([Record(end, 5, b"aborted", b"v")], transactional=True, producer=(9, 0, 0))
    content += marker(end + 1, commit=False, timestamp=6, producer_id=9, producer_epoch=0, coordinator_epoch=0)
    log.write_bytes(log.read_bytes() + content)
    row = check(tmp_path, "--partitions", "3", exit_code=0)["t"]
    assert (row["keys"], row["records"], row["rules"]["java"]) == (301, 301, 301)


def test_tombstones_and_holes_of_compaction_count_like_others(tmp_path: Path) -> None:
    records = [Record(3, 1, b"gone", None), Record(9, 2, b"user-1", b"v")]
    for partition in range(2):
        (tmp_path / f"t-{partition}").mkdir()
        content = batch([one for one in records if plain.partition("java", one.key or b"", 2) == partition] or records)
        (tmp_path / f"t-{partition}" / f"{0:020d}.log").write_bytes(content)
    row = check(tmp_path, "--min-keys", "1")["t"]
    assert row["keys"] == 2


def test_a_damaged_batch_is_passed_over_and_counted(tmp_path: Path) -> None:
    """Its keys are unknown; all others are judged, and the exit code reports the fault."""
    placed = by_rule("java", users(400), 2)
    write_topic(tmp_path, "t", placed)
    log = tmp_path / "t-1" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[100] ^= 0xFF
    log.write_bytes(content)
    done = run(tmp_path)
    row = json.loads(done.stdout)
    assert (done.exit_code, row["damages"], row["records"]) == (4, 1, 400 - 40)
    assert b"t-1" in done.stderr
    assert (row["rule"], row["misplaced"]["keys"]) == ("java", 0)


@pytest.mark.parametrize("jobs", ["1", "2", "5"])
def test_the_answer_does_not_depend_on_threads_or_the_order_of_paths(tmp_path: Path, jobs: str) -> None:
    """Logs of several slices; misplaced keys at both ends of a log have their offsets joined."""
    chance = random.Random(5)
    for rule, name in (("java", "a"), ("fnv1a", "b")):
        placed = by_rule(rule, [b"k%d" % chance.randrange(20_000) for _ in range(3_000)], 3)
        placed = (
            [(b"astray-%d" % (i % 7), i % 3) for i in range(60)] + placed + [(b"astray-1", i % 3) for i in range(3)]
        )
        write_topic(tmp_path / "d", name, placed)
    parts = sorted((tmp_path / "d").iterdir())
    whole = run(tmp_path / "d", "--partitions", "3", "--jobs", "1").stdout
    assert run(tmp_path / "d", "--partitions", "3", "--jobs", jobs).stdout == whole
    assert run(*parts[::-1], "--partitions", "3", "--jobs", jobs).stdout == whole
    agrees(json.loads(whole.splitlines()[0]), {"partitions": 3, "rule": "java"})


def test_slices_of_one_log_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With threads a large log is read in pieces."""
    from klog.commands.keys import key_check as module

    monkeypatch.setattr(module, "_SPLIT_BYTES", 2000)
    monkeypatch.setattr(module, "_ALONE_BYTES", 0)
    placed: list[Placed] = [*by_rule("java", users(900), 2)]
    placed[450:450] = [(b"astray", 0), (b"", 0), (b"", 1)]
    placed += [(b"astray", 0), (b"astray", 1), (b"", 0), (b"", 1)]
    write_topic(tmp_path, "t", placed)
    for folder in ("t-0", "t-1"):  # an index, where slices may begin
        run_klog("recover", tmp_path / folder, "--apply", "--index-interval", "500")
    rows = [check(tmp_path, "--jobs", jobs)["t"] for jobs in ("1", "3")]
    assert rows[0] == rows[1]
    agrees(rows[0], {"keys": 901, "records": 907, "empty_keys": 4, "in_several_partitions": 1})
    astray = next(one for one in rows[0]["examples"] if one["key"] == "astray")
    assert astray["records"] == sum(one == (b"astray", astray["partition"]) for one in placed)


# which directories, how many partitions


def disk(root: Path, placed: list[Placed], *, cluster: str | None = CLUSTER, topic_id: str | None = TOPIC) -> Path:
    write_topic(root, "t", placed)
    for folder in root.iterdir():
        if topic_id is not None:
            (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    if cluster is not None:
        (root / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={cluster}\n")
    return root


def test_copies_on_several_disks_count_once_and_the_longest_is_read(tmp_path: Path) -> None:
    placed = by_rule("java", users(400), 3)
    one, two = disk(tmp_path / "b1", placed[:300]), disk(tmp_path / "b2", placed)
    row = check(one, two, exit_code=0)["t"]
    agrees(row, verdict(placed, 3))
    assert row["topic_id"] == TOPIC


def test_directories_that_are_no_copies_are_refused(tmp_path: Path) -> None:
    """As by every command that would have to take one of them."""
    placed = by_rule("java", users(300), 2)
    one, two = disk(tmp_path / "b1", placed), disk(tmp_path / "b2", placed, cluster=OTHER_CLUSTER)
    done = run(one, two)
    assert (done.exit_code, done.stdout) == (8, b"")
    assert b"t-0 is two things" in done.stderr
    assert check(one, two, "--cluster", CLUSTER, exit_code=0)["t"]["keys"] == 300
    bare = [disk(tmp_path / name, placed, cluster=None, topic_id=None) for name in ("c1", "c2")]
    assert run(*bare).exit_code == 8
    assert check(*bare, "--by-name", exit_code=0)["t"]["records"] == 300


def test_the_number_of_partitions_is_the_options_then_the_metadata_logs_then_the_directories(tmp_path: Path) -> None:
    """A number that is too small makes every key look misplaced; each answer therefore names its source."""
    row = check(KEYS, "--topic", "grown")["grown"]
    assert (row["partitions"], row["partitions_from"]) == (6, "metadata")
    row = check(KEYS / "grown-1", KEYS / "grown-4")["grown"]
    assert (row["partitions"], row["partitions_from"]) == (6, "metadata")
    row = check(KEYS, "--topic", "grown", "--partitions", "3")["grown"]
    assert (row["partitions"], row["partitions_from"]) == (3, "option")
    alone = tmp_path / "alone"
    shutil.copytree(KEYS, alone)
    shutil.rmtree(alone / "__cluster_metadata-0")
    shutil.rmtree(alone / "grown-2")
    done = run_klog("keys", "check", alone, "--topic", "grown", "--partition", "1", "--output", "jsonl")
    row = json.loads(done.stdout)
    assert (row["partitions"], row["partitions_from"]) == (6, "directories")
    assert done.stderr.startswith(
        b"klog: grown: 6 partitions, by the highest directory, missing here: 2; --partitions N"
    )


def test_metadata_older_than_the_directories_does_not_count(tmp_path: Path) -> None:
    """A directory whose number is not in the metadata log belongs to a topic that has grown since."""
    data = tmp_path / "data"
    shutil.copytree(KEYS, data)
    shutil.copytree(KEYS / "grown-5", data / "grown-6")
    row = check(data, "--topic", "grown")["grown"]
    assert (row["partitions"], row["partitions_from"]) == (7, "directories")
    for folder in data.glob("two-*"):
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC}")
    row = check(data, "--topic", "two")["two"]
    assert (row["partitions"], row["partitions_from"]) == (8, "directories")


def test_topics_that_brokers_write_are_left_out_unless_named() -> None:
    """Their records are placed by other rules."""
    rows = check(FIXTURES / "modern")
    assert not [name for name in rows if name.startswith("__")]
    assert set(check(FIXTURES / "modern", "--topic", "__consumer_offsets")) == {"__consumer_offsets"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), b"nothing to check"),
        ((KEYS, "--partitions", "0"), b"--partitions"),
        ((KEYS, "--partitions", "65537"), b"--partitions"),
        ((KEYS, "--topic", "grwn"), b"did you mean grown?"),
        ((KEYS / "grown-0" / f"{0:020d}.log",), b"expected a log dir"),
        ((KEYS, "--min-keys", "0"), b"--min-keys"),
        ((KEYS, "--list", "1001"), b"--list"),
    ],
)
def test_a_wrong_option_is_a_usage_error(arguments: tuple[str | Path, ...], said: bytes) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert said in done.stderr


def test_a_directory_with_an_impossible_number_is_refused(tmp_path: Path) -> None:
    """It would ask for memory for as many partitions."""
    (tmp_path / "t-70000").mkdir()
    done = run(tmp_path)
    assert (done.exit_code, done.stdout) == (8, b"")
    assert b"more than 65536 partitions" in done.stderr


def test_lists_are_as_long_as_asked_for_and_long_keys_are_cut(tmp_path: Path) -> None:
    long = b"x" * 70_000
    placed: list[Placed] = [*by_rule("java", users(300), 3), *[(b"astray-%d" % i, 2) for i in range(9)], (long, 1)]
    data = write_topic(tmp_path, "t", placed)
    for most in (0, 1, 4):
        assert len(check(data, "--list", str(most))["t"]["examples"]) == most
    one = next(one for one in check(data)["t"]["examples"] if "length" in one)
    assert (len(one["key"]), one["length"]) == (65536, 70_000)


def test_the_report_for_people_names_rules_and_reasons() -> None:
    done = run_klog("keys", "check", KEYS)
    text = done.stdout.decode()
    assert done.exit_code == 4
    assert "140 when there were 3 partitions" in text
    assert "11 as java" in text
    assert "15 unexplained" in text
    assert "grown: keys that java puts elsewhere, 120 more" in text
    assert [
        row["topic"] for row in json.loads(run_klog("keys", "check", KEYS, "--output", "json").stdout)["topics"]
    ] == [
        "byhand",
        "grown",
        "two",
    ]


# the kernel's table


def window_of(keys: list[bytes]) -> Any:
    return filled(batch([Record(offset, 0, key, b"") for offset, key in enumerate(keys)]))


def filled_table(placed: list[Placed], partitions: int, hashed: int = 0) -> KeyPlaces:
    table = KeyPlaces(partitions, hashed)
    reader = KeyReader(table)
    for partition in sorted({at for _, at in placed}):
        reader.add(window_of([key for key, at in placed if at == partition and key is not None]), partition)
    reader.close()
    return table


@pytest.mark.parametrize("hashed", [0, 1, 2])
def test_a_key_in_thousands_of_partitions_is_one_key(hashed: int) -> None:
    """Each further place is found by itself: a line of the table never fills up with one key."""
    placed: list[Placed] = [(key, at) for at in range(3000) for key in (b"everywhere", b"here-%d" % at)]
    table = filled_table(placed, 3000, hashed)
    assert (table.keys, table.several, sum(table.places_by_rules)) == (3001, 1, 6000)
    again = KeyReader(table)
    again.add(window_of([b"everywhere", b"here-7", b"new"]), 7)
    again.close()
    assert (table.keys, table.several, sum(table.places_by_rules), sum(table.records_by_rules)) == (3002, 1, 6001, 6003)


def test_many_keys_are_told_apart_while_the_table_grows() -> None:
    table = KeyPlaces(11)
    reader = KeyReader(table)
    for start in range(0, 60_000, 2_000):
        keys = users(2_000, start)
        reader.add(window_of(keys), start // 2_000 % 11)
        reader.add(window_of(keys), start // 2_000 % 11)
    assert reader.take_counts()[0] == 120_000
    reader.close()
    assert (table.keys, table.several, sum(table.records_by_rules)) == (60_000, 0, 120_000)


def test_what_the_kernel_cannot_take_is_refused() -> None:
    table = KeyPlaces(3)
    with pytest.raises(ValueError, match="65536"):
        KeyReader(table).add(window_of([b"k"]), 65536)
    with pytest.raises(ValueError, match="partitions"):
        KeyPlaces(0)
    with pytest.raises(ValueError, match="hash"):
        table.judge(2, (), (0, 1, 3, 4, 5, 6))
    with pytest.raises(ValueError, match="others"):
        table.judge(0, (), (1, 2, 3, 4, 5, 5))
    with pytest.raises(ValueError, match="before"):
        table.explained(0, (3,))
    with pytest.raises(ValueError, match="1000"):
        table.listed(1001)
    with pytest.raises(ValueError, match="1000"):
        KeyExamples(table, [(1, 1)] * 1001)


def test_the_places_that_are_listed_are_the_same_each_time() -> None:
    """The digests are mixed by a secret, so the table has another order in each run."""
    placed: list[Placed] = [*by_rule("java", users(400), 5), *[(b"astray-%d" % i, i % 5) for i in range(200)]]
    found = []
    for _ in range(3):
        table = filled_table(placed, 5)
        table.judge(0, (), (1, 2, 3, 4, 5, 6))
        found.append(Counter((cause, at, expected) for cause, at, expected, _ in table.listed(20)))
        assert len(table.listed(1000)) == sum(
            count for rules, count in enumerate(table.places_by_rules) if not rules & 1
        )
    assert found[0] == found[1] == found[2]
