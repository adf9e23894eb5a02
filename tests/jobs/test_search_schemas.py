"""`klog search --schemas` and `--where`: exactly the records that a filter over the lines of `klog dump` finds."""

from __future__ import annotations

import csv
import io
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from klog.base.errors import UsageError
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.jobs.slice_scan import SliceScan
from klog.jobs.slices import slice_partition
from klog.log.records import RecordFilter
from klog.schemas.decoded import JsonText
from klog.schemas.decoded_rows import DecodedRows, Row
from klog.schemas.field_condition import FieldCondition
from klog_cli import schema_options

from tests.conftest import FIXTURES, run_klog
from tests.oracles.plain.encode import Record
from tests.schemas.corpus import REGISTRIES, Image, data, reference, truth
from tests.schemas.jsonl_filter import Where, conditions, holds
from tests.schemas.random_avro import SchemaMaker, ValueMaker, zigzag
from tests.schemas.small_registry import ORDER, make, order

DECODED = ("--schemas", "auto", "--output", "jsonl")


def dumped(path: Path, *options: str) -> list[dict[str, Any]]:
    """Return the lines of all records that a search looks at: no control records."""
    lines = run_klog("dump", path, *DECODED, "--no-control", *options).stdout.decode().split("\n")[:-1]
    return [json.loads(line) for line in lines if '"damage":' not in line]


def places(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one.get("topic"), one.get("partition"), one["offset"]) for one in lines]


def searched(path: Path, *options: str) -> list[dict[str, Any]]:
    lines = run_klog("search", path, *DECODED, *options).stdout.decode().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def compare(path: Path, lines: list[dict[str, Any]], numbers: random.Random, count: int, form: str = "plain") -> int:
    """Compare random conditions with a filter over *lines*; return how many records were found.

    A few of them are searched by the command itself.
    """
    style = schema_options.schema_style(["auto"], [str(path)], ("_schemas", form, "both", None))
    assert style is not None
    records = [
        (DecodedRows(one.topic, one.number, style), one, row) for one in partitions(path) for row in rows_of(one)
    ]
    found = 0
    for number, one in enumerate(conditions(numbers, lines, count)):
        every = [one, *conditions(numbers, lines, 1)] if numbers.random() < 0.1 else [one]
        texts = [each.text(numbers) for each in every]
        parsed = [*map(FieldCondition, texts)]
        expected = places([line for line in lines if all(holds(line, each) for each in every)])
        fitting = [(one.topic, one.number, row[0]) for decoded, one, row in records if decoded.fits(row, parsed)]
        assert sorted(fitting) == sorted(expected), texts
        if number < 3:
            words = [word for text in texts for word in ("--where", text)]
            assert sorted(places(searched(path, *words, "--json-form", form))) == sorted(expected), texts
        found += len(expected)
    return found


def partitions(path: Path) -> list[Partition]:
    every = path.iterdir() if (path / "_schemas-0").exists() or (path / "kafkasql-journal-0").exists() else [path]
    found = [Partition(str(one)) for one in every if one.is_dir()]
    return [one for one in found if one.topic is not None]


def rows_of(partition: Partition) -> list[Row]:
    """Return the records of a partition, as the kernel has them."""
    found: list[Row] = []
    for part in slice_partition(partition):
        for rows in SliceScan(RecordFilter()).read(part):
            assert not isinstance(rows, Damage)
            found += [rows.record(i) for i in range(rows.records)]
    return found


@pytest.mark.corpora
@pytest.mark.parametrize("canonical", [False, True], ids=["plain", "canonical"])
@pytest.mark.parametrize("name", REGISTRIES)
def test_random_conditions_find_what_a_filter_over_the_lines_finds(image: Image, name: str, canonical: bool) -> None:
    """Every format, both forms, errors, unframed bytes and nulls of real registries."""
    path, form = data(image, name), "canonical" if canonical else "plain"
    lines = dumped(path, "--json-form", form)
    assert len(lines) > 200
    assert compare(path, lines, random.Random(f"{name}{canonical}"), 80, form) > 100


@pytest.mark.corpora
@pytest.mark.parametrize("seed", range(3))
def test_random_schemas_and_values(seed: int, tmp_path: Path) -> None:
    """Names, numbers, times and nesting that no corpus has."""
    numbers = random.Random(seed)
    registry, records = [], list[Record]()
    while len(registry) < 40:
        schema = json.dumps(SchemaMaker(numbers).schema())
        number = len(registry) + 1
        try:
            known = reference().Avro(json.loads(schema)).schema
        except Exception:  # a record that contains itself
            continue
        registry.append((f"s{number}", 1, number, schema))
        for _ in range(4):
            with suppress(RecursionError):
                sides = [b"\0" + number.to_bytes(4, "big") + ValueMaker(numbers).value(known) for _ in range(2)]
                records.append(Record(len(records), key=sides[0], value=sides[1]))
    make(tmp_path, registry, records)
    lines = dumped(tmp_path / "orders-0")
    assert len(lines) == len(records)
    assert compare(tmp_path / "orders-0", lines, numbers, 150) > 60, f"seed {seed}"


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    values = [order(i, *("vip" for _ in range(i % 3))) for i in range(30)]
    records = [Record(i, 10**12 + i, b"k%d" % (i % 2), value) for i, value in enumerate(values)]
    records += [Record(30, 10**12, b"k", b"\0\0\0\x9c\x40"), Record(31, 10**12, b"k", order(31)[:-1])]
    records.append(Record(32, 10**12, b"k", None))
    make(tmp_path, [("orders-value", 1, 7, ORDER)], records)
    return tmp_path


def offsets(done: bytes) -> list[int]:
    return [json.loads(line)["offset"] for line in done.splitlines()]


def test_conditions_are_met_together_and_with_the_others(orders: Path) -> None:
    """The limit counts what was found, and not what was looked at."""
    words = ("search", orders / "orders-0", *DECODED)
    done = run_klog(*words, "--where", "value.id>=10", "--where", "value.tags[]=vip", "--limit", "3")
    assert offsets(done.stdout) == [10, 11, 13]
    done = run_klog(*words, "--where", "value.id<20", "--key", "k1", "--from-offset", "5", "--regex", "vip")
    assert offsets(done.stdout) == [5, 7, 11, 13, 17, 19]
    assert offsets(run_klog(*words, "--where", "key=k1", "--to-offset", "4").stdout) == [1, 3]
    assert offsets(run_klog(*words, "--where", "value=null").stdout) == [32]


def test_records_that_do_not_decode_do_not_fit_and_are_said_once(orders: Path) -> None:
    """One line for each kind, and exit code 4: the answer may be incomplete."""
    done = run_klog("search", orders / "orders-0", *DECODED, "--where", "value.id!=-1")
    assert done.exit_code == 4
    assert offsets(done.stdout) == [*range(30)]
    assert done.stderr.decode().splitlines() == [
        "klog: orders value: 1 record names schema id 40000, which is not in _schemas (first at orders-0 @ 30)",
        "klog: orders value: 1 record of schema id 7 cannot be decoded: truncated (first at orders-0 @ 31)",
    ]
    assert run_klog("search", orders / "orders-0", *DECODED, "--where", "key=k1").exit_code == 0
    none = run_klog("search", orders / "orders-0", "--schemas", "auto", "--where", "key=nobody")
    assert (none.exit_code, none.stdout) == (4, b"")
    assert none.stderr.decode() == "klog: no record where key=nobody in orders-0 (33 records read)\n"


def test_text_and_json_show_decoded_values(orders: Path) -> None:
    """People see JSON where there were bytes; the found part of a pattern is still found."""
    words = ("search", orders, "--topic", "orders", "--schemas", "auto", "--from-offset", "2", "--limit", "1")
    assert '  k0  {"id":2,"tags":["vip","vip"]}  ' in run_klog(*words).stdout.decode()
    (found,) = json.loads(run_klog(*words, "--output", "json").stdout)["records"]
    assert (found["value"], found["value_schema_id"]) == ({"id": 2, "tags": ["vip", "vip"]}, 7)
    lines = run_klog("search", orders / "orders-0", *DECODED).stdout.splitlines()
    every = [json.loads(line) for line in lines]
    without = [{name: one for name, one in line.items() if name != "file"} for line in every]
    assert without == dumped(orders / "orders-0")


@pytest.mark.corpora
@pytest.mark.parametrize("command", ["search", "records"])
@pytest.mark.parametrize("name", REGISTRIES)
def test_csv_has_the_rows_of_a_dump(image: Image, name: str, command: str) -> None:
    """The columns of schemas are the last ones, and the limit counts records, which may have several lines."""
    topic = truth(name)["topics"]["all"]
    for path in sorted(data(image, name).glob(f"{topic}-*")):
        words = (path, "--schemas", "auto", "--output", "csv")
        dumped_rows = list(csv.reader(io.StringIO(run_klog("dump", *words).stdout.decode(), newline="")))
        head = ("--head", "-n", "7") if command == "records" else ("-n", "7")
        found = list(csv.reader(io.StringIO(run_klog(command, *words, *head).stdout.decode(), newline="")))
        assert found == dumped_rows[:8]
        assert dumped_rows[0][-4:] == ["key_schema_id", "key_error", "value_schema_id", "value_error"]


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_a_reader_schema_reads_the_values_as_in_a_dump(image: Image, name: str) -> None:
    """And --where looks at the values that it makes: defaults and new names, whichever version wrote them."""
    topic, path = truth(name)["topics"]["evolved"], data(image, name)
    words = "-t", topic, "--reader-schema", "latest"
    wanted, own = dumped(path, *words), dumped(path, "-t", topic)
    assert [one["value"] for one in wanted] != [one["value"] for one in own]

    def values(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return sorted((one["partition"], one["offset"], json.dumps(one["value"])) for one in lines)

    assert values(searched(path, *words)) == values(wanted)
    rows = run_klog("records", path, *DECODED, *words, "--head", "-n", "100000").stdout.splitlines()
    assert values([one for one in map(json.loads, rows) if "value" in one]) == values(wanted)
    renamed = wanted[0]["value"]["title"]
    found = searched(path, *words, "--where", f"value.title={json.dumps(renamed)}")
    assert places(found) == places([one for one in wanted if one["value"]["title"] == renamed])
    for command in ("search", "records"):
        done = run_klog(command, path, *DECODED, "-t", topic, "--reader-schema", "4711")
        assert (done.exit_code, done.stdout) == (16, b"")
        assert b"--reader-schema 4711: no such schema" in done.stderr


def test_globs_and_other_disks_have_the_schemas_as_well(orders: Path, tmp_path: Path) -> None:
    """`auto` means the log dirs among the paths, as klog itself expands them."""
    elsewhere = tmp_path / "mnt/disk/other"
    elsewhere.mkdir(parents=True)
    (orders / "orders-0").rename(elsewhere / "orders-0")
    for paths in (
        [f"{tmp_path}/mnt/d*/o*er", tmp_path],
        [elsewhere, tmp_path],
        [elsewhere / "orders-0", tmp_path / "_schemas-0"],
    ):
        done = run_klog("search", *paths, *DECODED, "--topic", "orders", "--where", "value.id=3")
        assert offsets(done.stdout) == [3], paths
    assert run_klog("search", elsewhere, *DECODED).exit_code == 8


@pytest.mark.parametrize(
    ("text", "value", "fits"),
    [
        ("value.a=1", {"a": 1}, True),
        ("value.a=1", {"a": True}, False),
        ("value.a=true", {"a": 1}, False),
        ("value.a==1", {"a": 1.0}, True),
        ("value.a=0.1", {"a": 0.1}, True),
        ("value.a=12.5", {"a": "12.50"}, True),
        ("value.a>12.499", {"a": "12.50"}, True),
        ("value.a>9", {"a": "10"}, True),
        ('value.a>"9"', {"a": "10"}, False),
        ("value.a!=1", {}, False),
        ("value.a!=1", {"a": None}, True),
        ("value.a!=null", {"a": None}, False),
        ("value.a=null", {}, False),
        ("value.a=", {"a": ""}, True),
        ("value.a=01234", {"a": "01234"}, True),
        ("value.a<5", {"a": "abc"}, False),
        ("value.a[0].b~^s", {"a": [{"b": "sku"}]}, True),
        ("value.a[-1]=2", {"a": [1, 2]}, True),
        ("value.a[2]=2", {"a": [1, 2]}, False),
        ("value.a[]!=1", {"a": [1, 1]}, False),
        ("value.a[]!=1", {"a": [1, 2]}, True),
        ("value.a[].b[]=3", {"a": [{"b": []}, {"b": [3]}]}, True),
        ("value.a[]=7", {"a": {"x": 7}}, True),
        ("value.a[0]=7", {"a": {"0": 7}}, False),
        ('value["a.b"]["]"]=1', {"a.b": {"]": 1}}, True),
        ('value.a=[1,{"b":"2.0"}]', {"a": [1, {"b": "2.0"}]}, True),
        ("value.at>=2026-11-21T05:10:19Z", {"at": "2026-11-21T05:10:19.000Z"}, True),
        ("value.at>2026-11-21T05:10:19Z", {"at": "2026-11-21T05:10:19.000000001Z"}, True),
        ("value.at=2026-11-21T05:10:19Z", {"at": "2026-11-21T06:10:19.000+01:00"}, True),
        ("value.at<2026-11-22", {"at": "2026-11-21T23:59:59.999Z"}, True),
        ("value.at>5:10", {"at": "05:10:19.123"}, False),
        ("value.at>05:10", {"at": "05:10:19.123"}, True),
        ("value.at>05:10", {"at": "2026-11-21"}, True),
        ("value.at>2026-01-01", {"at": 253402300800000}, False),
        ("value.x<1e400", {"x": 10**399}, True),
        ("value = 7 ", 7, True),
        ("value.a=NaN", {"a": "NaN"}, True),
        ("value.n=9007199254740993", JsonText('{"n":9007199254740993}'), True),
        ("value.n=9007199254740993", JsonText('{"n":9007199254740992}'), False),
        ("value.n>1", JsonText('{"n":1e99999999999999999999}'), True),
        ("value.n<1", JsonText('{"n":-1e99999999999999999999}'), True),
        ("value.n=0", JsonText('{"n":1e-99999999999999999999}'), True),
    ],
)  # fmt: skip
def test_comparisons(text: str, value: object, fits: bool) -> None:
    assert FieldCondition(text).fits(value) is fits


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id=1", "a path begins with key or value"),
        ("values.id=1", "a path begins with key or value"),
        ("value.id", "expected a path, one of = != < <= > >= ~"),
        ("value.first name=x", 'a name with other characters is written ["so"]'),
        ("value.a[x]=1", 'a name with other characters is written ["so"]'),
        ('value["\\x"]=1', "is no text of JSON"),
        ("value.a<null", "< needs a number, a text or a time"),
        ("value.a>=[1]", ">= needs a number, a text or a time"),
        ("value.a~(", "not a regular expression"),
    ],
)
def test_wrong_conditions_are_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match="--where") as caught:
        FieldCondition(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--where", "value.a=1"], "--where looks at decoded keys and values: add --schemas auto"),
        (["--schemas", "auto", "--values", "hex"], "--values goes without --schemas"),
        (["--schemas", "auto", "--where", "value=1", "--decode", "key"], "--decode key leaves out the value"),
    ],
)
def test_options_that_do_not_go_together_are_16(orders: Path, words: list[str], said: str) -> None:
    done = run_klog("search", orders / "orders-0", *words)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert said in done.stderr.decode()


NODE = '{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}'
BAD_VALUES = {
    "an endless number": b"\0\0\0\0\7" + b"\xff" * 30,
    "a length beyond the end": b"\0\0\0\0\7\2" + zigzag(1) + zigzag(2**40),
    "2^40 elements of nothing": b"\0\0\0\0\x08" + zigzag(2**40),
    "100 000 levels": b"\0\0\0\0\x09" + b"\2" * 100_000 + b"\0",
    "a branch that is none": b"\0\0\0\0\x09\x40",
    "text that is not UTF-8": b"\0\0\0\0\7\2" + zigzag(1) + zigzag(2) + b"\xff\xfe" + b"\0",
    "a broken schema": b"\0\0\0\0\x0a\0",
    "a lost id": b"\0\0\0\x9c\x40\0",
    "nothing": b"\0\0\0\0\7",
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_bad_values_cost_a_line_and_no_more(name: str, tmp_path: Path) -> None:
    """The records around them are found and shown, in every command; the bytes stay, and the exit code is 4."""
    schemas = [
        ("orders-value", 1, 7, ORDER),
        ("n", 1, 8, '{"type":"array","items":"null"}'),
        ("r", 1, 9, NODE),
        ("b", 1, 10, "{"),
    ]
    bad = BAD_VALUES[name]
    make(tmp_path, schemas, [Record(0, value=order(1, "a")), Record(1, value=bad), Record(2, value=order(2, "b"))])
    path = tmp_path / "orders-0"
    done = run_klog("search", path, *DECODED, "--where", "value.tags[]~.")
    assert (done.exit_code, offsets(done.stdout)) == (4, [0, 2])
    assert len(done.stderr.splitlines()) == 1
    shown = run_klog("records", path, "--schemas", "auto", "--format", "%v\\n").stdout.split(b"\n")
    assert (shown[0], shown[-2]) == (b'{"id":1,"tags":["a"]}', b'{"id":2,"tags":["b"]}')
    assert bad in run_klog("records", path, "--schemas", "auto", "--format", "%v|").stdout
    field = run_klog("bytes", path, "--offset", "1", "--schemas", "auto", "--output", "json")
    assert field.exit_code == 4
    assert json.loads(field.stdout)["problems"]


def test_topics_of_brokers_are_not_decoded(orders: Path) -> None:
    """Remote storage's metadata begins with bytes that look like framing."""
    for place in ("modern/__consumer_offsets-1", "modern/__transaction_state-1"):
        plain = run_klog("search", FIXTURES / place, "--output", "jsonl").stdout
        assert run_klog("search", FIXTURES / place, *DECODED[2:], "--schemas", orders / "_schemas-0").stdout == plain
    own = orders / "__remote_log_metadata-0"
    (orders / "orders-0").rename(own)
    plain = run_klog("search", own, "--output", "jsonl").stdout
    assert run_klog("search", own, *DECODED).stdout == plain


def test_a_condition_is_taken_apart_as_it_is_typed() -> None:
    """Were it not, the comparisons above would compare nothing."""
    where = Where("value", ("a.b", 0, None, "c"), "=", "x y")
    record = {"value": {"a.b": [[{"c": "x y"}]]}}
    assert holds(record, where)
    for seed in range(20):
        assert FieldCondition(where.text(random.Random(seed))).fits(record["value"])


@pytest.mark.corpora
def test_a_search_of_apicurios_data_counts_as_the_truth_does(image: Image) -> None:
    """One id, asked for by a field, in the records of a topic whose schemas are in a journal."""
    right = [one for one in truth("apicurio")["records"] if one["topic"] == truth("apicurio")["topics"]["evolved"]]
    wanted = next(one["value"]["plain"]["id"] for one in right if "plain" in one["value"])
    expected = [one["offset"] for one in right if one["value"].get("plain", {}).get("id") == wanted]
    found = searched(data(image, "apicurio"), "--topic", right[0]["topic"], "--where", f"value.id={wanted}")
    assert [one["offset"] for one in found] == expected
