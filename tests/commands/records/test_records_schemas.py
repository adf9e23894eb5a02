"""`klog records --schemas`: the same keys and values as `klog dump --schemas` has, for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from klog_cli import schema_options

from tests.conftest import run_klog
from tests.oracles.plain.encode import Record
from tests.schemas.corpus import REGISTRIES, Image, data, truth
from tests.schemas.small_registry import ORDER, make, order
from tests.support.terminal import on_screen

FIELD, END = "<-|->", "<-.->"


def dumped(path: Path) -> list[dict[str, Any]]:
    lines = run_klog("dump", path, "--schemas", "auto", "--output", "jsonl").stdout.splitlines()
    return [json.loads(line) for line in lines]


def shown(record: dict[str, Any], side: str) -> bytes | None:
    """How people are shown a key or a value of a dump: a text as it is, other values as JSON; None for bytes."""
    if side not in record:
        return None
    value, is_decoded = (
        record[side],
        f"{side}_schema_id" in record and record.get(f"{side}_error") in (None, "trailing-bytes"),
    )
    if isinstance(value, str) or (value is None and not is_decoded):
        return (value or "").encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_a_format_prints_what_a_dump_has(image: Image, name: str) -> None:
    """Keys and values of every kind of all three registries; the JSON forms are the lines of the dump themselves."""
    path, judged = data(image, name), 0
    for topic in truth(name)["topics"].values():
        for partition in sorted(path.glob(f"{topic}-*")):
            every = dumped(partition)
            lines = run_klog(
                "records", partition, "--schemas", "auto", "--head", "-n", "1000", "--output", "jsonl"
            ).stdout
            assert [json.loads(line) for line in lines.splitlines()] == every
            done = run_klog(
                "records",
                partition,
                "--schemas",
                "auto",
                "--head",
                "-n",
                "1000",
                "--format",
                f"%o{FIELD}%k{FIELD}%v{END}",
            )
            for record, text in zip(every, done.stdout.split(END.encode()), strict=False):
                sides = text.split(FIELD.encode())
                assert sides[0] == b"%d" % record["offset"]
                for side, found in zip(("key", "value"), sides[1:], strict=False):
                    expected = shown(record, side)
                    if expected is not None:
                        assert json_or(found) == json_or(expected), record
                        judged += 1
    assert judged > 300


def json_or(text: bytes) -> object:
    """Numbers may be written in several ways."""
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    records = [
        Record(0, 10**12, b"k0", order(1, "vip")),
        Record(1, 10**12, b"k1", None),
        Record(2, 10**12, b"\0\0\0\0\x08\4hi", b"x"),
        Record(3, 10**12, b"k3", b"\0\0\0\x9c\x40"),
    ]
    make(tmp_path, [("orders-value", 1, 7, ORDER), ("orders-key", 1, 8, '"string"')], records)
    return tmp_path


def test_columns_show_decoded_values(orders: Path) -> None:
    """Tombstones and bytes that do not decode are as without; the error is told, and the exit code has it."""
    done = run_klog("records", orders / "orders-0", "--schemas", "auto")
    rows = [line.split()[3:] for line in done.stdout.decode().splitlines()[2:]]
    assert rows == [
        ["k0", '{"id":1,"tags":["vip"]}'], ["k1", "null", "tombstone"], ["hi", "x"], ["k3", "\\x00\\x00\\x00\\x9c@"],
    ]  # fmt: skip
    assert done.exit_code == 4
    assert b"which is not in _schemas (first at orders-0 @ 3)" in done.stderr


def test_forms_choose_between_bytes_and_values(orders: Path) -> None:
    """`hex` shows what is stored; `schema` finds the schemas by itself; `--pretty` indents what was decoded."""
    one = ("records", orders / "orders-0", "--head", "-n", "1")
    stored = order(1, "vip")
    assert run_klog(*one, "--schemas", "auto", "--value-as", "hex", "--format", "%v").stdout == stored.hex().encode()
    assert run_klog(*one, "--value-as", "schema", "--format", "%v %S").stdout == b'{"id":1,"tags":["vip"]} %d' % len(
        stored
    )
    assert run_klog(*one, "--format", "%v").stdout == stored
    assert run_klog(*one, "--schemas", "auto", "--decode", "key", "--format", "%v").stdout == stored
    assert b'  "id": 1,\n' in run_klog(*one, "--schemas", "auto", "--pretty").stdout
    assert run_klog(*one, "--key", "k0", "--key-as", "schema", "--format", "%k").stdout == b"k0"


def test_a_terminal_gets_schemas_by_itself(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that do not decode are reported, and without --schemas they are no failure."""
    seen = on_screen("records", orders / "orders-0", columns=120, colours=False)
    assert '{"id":1,"tags":["vip"]}' in seen.text
    assert "which is not in _schemas" in seen.text
    assert seen.exit_code == 0
    assert '{"id"' not in on_screen("records", orders / "orders-0", "--value-as", "text", columns=120).text
    (orders / "_schemas-0").rename(orders / "gone")
    assert "their schemas" not in on_screen("records", orders / "orders-0", columns=120, colours=False).text
    (orders / "gone").rename(orders / "_schemas-0")

    def missing(*_: object) -> None:
        raise schema_options.UsageError("no fastavro")

    monkeypatch.setattr(schema_options, "_check_libraries", missing)
    without = on_screen("records", orders / "orders-0", columns=120, colours=False)
    assert "keys and values are shown without their schemas: no fastavro" in without.text
    assert without.exit_code == 0
