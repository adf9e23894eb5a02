"""Names and text files, made up in their thousands: klog reads what Kafka reads and refuses what Kafka refuses."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Callable

import pytest
from klog.formats.checkpoint import (
    Malformed,
    epochs_in_force,
    read_epochs,
    read_offsets,
    read_partition_metadata,
)
from klog.formats.java_text import parse_int, parse_uuid
from klog.formats.names import FileKind, Stage, parse_file, parse_partition
from klog.formats.properties import read_meta_properties, read_properties

from tests.brokers import kafka

CASES = 4000
UNIQUE = ".0f8fad5bd9cb469fa16570867728950e"
TOPIC_ID = "rJv2bIYmQBmpTVV5UtZBLw"
LONG = ("2147483647", "2147483648", "9223372036854775807", "9223372036854775808")


def joined(rng: random.Random, pieces: str | tuple[str, ...], least: int, most: int) -> str:
    return "".join(rng.choice(pieces) for _ in range(rng.randint(least, most)))


def directory(rng: random.Random) -> str:
    suffixes = ("-delete", "-future", "-stray", UNIQUE, UNIQUE)
    return joined(rng, (*suffixes, "a", "-", "-", "-0", "1", "23", ".", "+", "٣", " ", "\xa0", "é", LONG[1]), 1, 7)


def file(rng: random.Random) -> str:
    return joined(rng, ("0", "00000000000000000005", ".log", ".index", ".", "x", "+", "-", "٣", "𝟎", *LONG), 1, 4)


def kraft(rng: random.Random) -> str:
    usual = "00000000000000000312-0000000007"
    start = usual if rng.random() < 0.5 else joined(rng, (usual, "00000000000000000312", "-", "7", "x", "٠", "+"), 1, 5)
    return (
        start + rng.choice(("", "x", "-123")) + rng.choice((".checkpoint", ".checkpoint.part", ".checkpoint.deleted"))
    )


def uuid(rng: random.Random) -> str:
    return joined(rng, "ABCDwxyz0189-_", 20, 24) + rng.choice(("", "=", "==", "+"))


def number(rng: random.Random) -> str:
    if rng.random() < 0.7:
        return str(rng.randint(0, 9))
    return joined(rng, ("0", "1", "9", *LONG, "-", "+", "٣", "𝟎", " ", "_", "0" * 30), 0, 3)


def checkpoint(rng: random.Random, fields: int) -> bytes:
    count = rng.randint(0, 4)
    version = rng.choice(["0"] * 12 + ["1", "x", "", " 0", "+0"])
    lines = [version, str(count) if rng.random() < 0.9 else rng.choice(("0", "-1", "7", "x", "", "+1"))]
    for _ in range(count):
        entry = [number(rng) for _ in range(fields)]
        if fields == 3:
            entry[0] = rng.choice(("t", "orders", "é", "a.b"))
        if rng.random() < 0.05:
            entry.append("z")
        line = rng.choice([" "] * 9 + ["  ", "\t", "\xa0", "\x0b", "\x1c"]).join(entry)
        lines.append(rng.choice([line] * 12 + [f" {line}", f"{line} ", "", "  ", " 1 2"]))
    end = rng.choice(("\n", "\n", "\r\n", "\r"))
    content = (end.join(lines) + rng.choice((end, end, end, "", end + end))).encode()
    if rng.random() < 0.05:
        at = rng.randrange(len(content) + 1)
        return content[:at] + rng.choice((b"\xff", b"\xc3", b"\x80")) + content[at:]
    return content


def metadata(rng: random.Random) -> str:
    if rng.random() < 0.5:
        topic_id = rng.choice((TOPIC_ID, uuid(rng), "A" * 22)) + rng.choice(("", " ", ": "))
        return f"version: {number(rng)}\ntopic_id: {topic_id}"
    return joined(rng, ("version: 0\n", f"topic_id: {TOPIC_ID}", "\n", " ", ":", ": ", "1", "\t", "\r\n"), 1, 6)


def properties(rng: random.Random) -> bytes:
    pieces = (*"ab=: \t\f\n\r#!n\xe9", "\r\n", "\\", "\\", "\\u0041", "\\u12", "\\u20AC")
    # Java makes an empty property of a backslash at the very end, klog none: no broker writes either.
    return (joined(rng, pieces, 0, 14) + "x").encode("latin-1")


def meta(rng: random.Random) -> bytes:
    versions = ("version=0", "version=1", "version= 1 ", "version=2")
    ids = (
        "broker.id=3",
        "broker.id=",
        "node.id=4",
        "node.id=x",
        "cluster.id=abc",
        f"directory.id={TOPIC_ID}",
        "directory.id=zz",
    )
    return "\n".join(rng.choice((*versions, *ids, *ids)) for _ in range(rng.randint(0, 6))).encode()


def read_directory(text: str) -> str | None:
    found = parse_partition(text)
    return f"{found.topic}|{found.partition}" if found else None


def read_kraft(text: str) -> str | None:
    found = parse_file(text)
    if found.kind is not FileKind.KRAFT_SNAPSHOT or found.offset is None:
        return None
    flags = (found.stage is Stage.PART, found.stage is Stage.DELETED)
    return "|".join(map(str, (found.offset, found.epoch, *flags))).replace("True", "true").replace("False", "false")


def text(value: object) -> str | None:
    return None if value is None else str(value)


def listed(entries: object, malformed: Malformed | None) -> str | None:
    assert isinstance(entries, list | tuple)
    return None if malformed else ";".join("|".join(map(str, entry)) for entry in entries)


def read_epoch_file(content: bytes) -> str | None:
    found = read_epochs(content)
    return listed(epochs_in_force(found.entries), found.malformed)


def read_offset_file(content: bytes) -> str | None:
    found = read_offsets(content)
    return listed(found.entries, found.malformed)


def read_metadata_file(content: bytes) -> str | None:
    found = read_partition_metadata(content)
    return None if isinstance(found, Malformed) else f"{found.version}|{found.topic_id}"


def read_property_file(content: bytes) -> str | None:
    found = read_properties(content)
    return None if isinstance(found, Malformed) else "\1".join(f"{key}\2{found[key]}" for key in sorted(found))


def read_meta_file(content: bytes) -> str | None:
    found = read_meta_properties(content)
    if isinstance(found, Malformed):
        return None
    return f"{found.version}|{found.cluster_id}|{found.node_id}|{found.directory_id}"


Reader = Callable[[bytes], str | None]
KINDS: dict[str, tuple[Callable[[random.Random], str | bytes], Reader]] = {
    "directory": (directory, lambda content: read_directory(content.decode())),
    "file": (file, lambda content: text(parse_file(content.decode()).offset)),
    "kraft": (kraft, lambda content: read_kraft(content.decode())),
    "uuid": (uuid, lambda content: parse_uuid(content.decode())),
    "int": (number, lambda content: text(parse_int(content.decode()))),
    "offsets": (lambda rng: checkpoint(rng, 3), read_offset_file),
    "epochs": (lambda rng: checkpoint(rng, 2), read_epoch_file),
    "metadata": (metadata, read_metadata_file),
    "properties": (properties, read_property_file),
    "meta": (meta, read_meta_file),
}


Cases = dict[str, list[tuple[bytes, str | None]]]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """For each kind, made-up contents and what Kafka reads of them, None if it refuses."""
    made: list[tuple[str, bytes]] = []
    for kind, (make, _) in KINDS.items():
        rng = random.Random(kind)
        contents = (make(rng) for _ in range(CASES))
        made += [(kind, content if isinstance(content, bytes) else content.encode()) for content in contents]
    requests = "".join(f"{kind} {base64.b64encode(content).decode()}\n" for kind, content in made)
    command = kafka.program(kafka.NEWEST, "ReadTexts", str(tmp_path_factory.mktemp("texts")))
    done = subprocess.run(command, input=requests.encode(), stdout=subprocess.PIPE, check=True, timeout=300)
    answers: Cases = {}
    for (kind, content), line in zip(made, done.stdout.decode().splitlines(), strict=True):
        read = base64.b64decode(line[1:]).decode() if line[0] == "+" else None
        answers.setdefault(kind, []).append((content, read))
    return answers


@pytest.mark.kafka
@pytest.mark.parametrize("kind", KINDS)
def test_klog_reads_what_kafka_reads(kind: str, cases: Cases) -> None:
    read = KINDS[kind][1]
    assert [(content, read(content), wanted) for content, wanted in cases[kind] if read(content) != wanted] == []
    refused = sum(wanted is None for _, wanted in cases[kind])
    assert CASES * 0.03 < refused < CASES * 0.97, "the cases are all of one sort: they no longer test much"
