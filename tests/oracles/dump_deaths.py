"""Files that end Kafka's dump tool with an exception, each made from a fixture: as in docs/dump-differences.md."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import FIXTURES
from tests.support.mutate import whole_batches

FIRST = "00000000000000000000"
LOG, INDEX, TIMEINDEX = f"{FIRST}.log", f"{FIRST}.index", f"{FIRST}.timeindex"
# Places in a batch of magic 2, and in a message of magic 0 and 1.
LENGTH, MAGIC, ATTRIBUTES, COUNT, RECORDS = 8, 16, 22, 57, 61
MESSAGE_ATTRIBUTES = 17


@dataclass(frozen=True)
class Death:
    """A case: its name in the documentation, the way its file is made, the flags to dump it with."""

    title: str
    make: Callable[[Path], Path]
    flags: tuple[str, ...] = ()


def batches(topic: str, limit: int = 1, start: int = 0, log: str = LOG) -> bytearray:
    """Return some whole batches of a fixture: as many as fit into *limit* bytes, at least one."""
    return bytearray(whole_batches((FIXTURES / topic / log).read_bytes(), limit, start))


def put(folder: Path, name: str, content: bytes | bytearray) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def partition(folder: Path, topic: str = "modern/dense-0", *, without: str = "") -> None:
    """Copy the first segment and its indexes, except the file with the suffix *without*."""
    for name in {LOG, INDEX, TIMEINDEX} - {f"{FIRST}{without}"}:
        (folder / name).write_bytes((FIXTURES / topic / name).read_bytes())


def foreign_name(folder: Path) -> Path:
    return put(folder, "saved.log", batches("modern/plain-1"))


def foreign_checkpoint(folder: Path) -> Path:
    return put(folder, "saved.checkpoint", batches("modern/__cluster_metadata-0"))


def absent(folder: Path) -> Path:
    return folder / LOG


def larger_than_an_int(folder: Path) -> Path:
    with open(folder / LOG, "wb") as file:
        file.write(batches("modern/plain-1"))
        file.truncate(1 << 31)  # a sparse file: no block is written
    return folder / LOG


def zero_tail(folder: Path) -> Path:
    return put(folder, LOG, batches("modern/plain-1") + bytes(4096))


def negative_length(folder: Path) -> Path:
    second = batches("modern/plain-1", start=1)
    struct.pack_into(">i", second, LENGTH, -5)
    return put(folder, LOG, batches("modern/plain-1") + second)


def short_length(folder: Path) -> Path:
    """Long enough for a message of magic 0, too short for a batch of magic 2."""
    second = batches("modern/plain-1", start=1)
    struct.pack_into(">i", second, LENGTH, 20)
    return put(folder, LOG, batches("modern/plain-1") + second)


def unknown_codec(folder: Path) -> Path:
    content = batches("modern/plain-1")
    content[ATTRIBUTES] |= 6
    return put(folder, LOG, content)


def unknown_codec_of_a_message(folder: Path) -> Path:
    content = batches("legacy/v1-none-0")
    content[MESSAGE_ATTRIBUTES] |= 6
    return put(folder, LOG, content)


def zstd_in_a_message(folder: Path) -> Path:
    content = batches("legacy/v1-gzip-0")
    content[MESSAGE_ATTRIBUTES] = 4
    return put(folder, LOG, content)


def record_too_long(folder: Path) -> Path:
    content = batches("modern/plain-2", start=2)
    content[RECORDS : RECORDS + 2] = b"\xfe\x7f"  # a varint: the first record claims to be 8191 bytes
    return put(folder, LOG, content)


def too_many_records(folder: Path) -> Path:
    content = batches("modern/plain-2", start=2)
    (count,) = struct.unpack_from(">i", content, COUNT)
    struct.pack_into(">i", content, COUNT, count + 3)
    return put(folder, LOG, content)


def too_few_records(folder: Path) -> Path:
    content = batches("modern/plain-2", start=2)
    struct.pack_into(">i", content, COUNT, 2)
    return put(folder, LOG, content)


def negative_count(folder: Path) -> Path:
    content = batches("modern/plain-2", start=2)
    struct.pack_into(">i", content, COUNT, -2)
    return put(folder, LOG, content)


def broken_codec(topic: str, start: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        content = batches(topic, start=start)
        content[RECORDS : RECORDS + 12] = bytes(byte ^ 0xFF for byte in content[RECORDS : RECORDS + 12])
        return put(folder, LOG, content)

    return make


def broken_wrapper(topic: str) -> Callable[[Path], Path]:
    """Damage the compressed value of a wrapper message of magic 0 or 1."""

    def make(folder: Path) -> Path:
        content = batches(topic)
        value = 26 if content[MAGIC] == 0 else 34
        content[value : value + 12] = bytes(byte ^ 0xFF for byte in content[value : value + 12])
        return put(folder, LOG, content)

    return make


def control_with_a_short_key(folder: Path) -> Path:
    """Make a marker's key two bytes shorter and its value two bytes longer: a sound record, but no marker."""
    content = batches("modern/tx-0", log="00000000000000000016.log")
    key, value = content[RECORDS + 5 : RECORDS + 9], content[RECORDS + 10 : RECORDS + 16]
    assert content[RECORDS + 4 : RECORDS + 16] == b"\x08" + key + b"\x0c" + value
    content[RECORDS + 4 : RECORDS + 16] = b"\x04" + key[:2] + b"\x10" + key[2:] + value
    return put(folder, LOG, content)


def null_group_key(folder: Path) -> Path:
    content = batches("modern/plain-2", 1 << 20)
    return put(folder, LOG, content)


def log_of_the_index_missing(folder: Path) -> Path:
    partition(folder, without=".log")
    return folder / INDEX


def index_missing(folder: Path) -> Path:
    partition(folder, without=".index")
    return folder / INDEX


def index_of_the_time_index_missing(folder: Path) -> Path:
    partition(folder, without=".index")
    return folder / TIMEINDEX


def index_entry(position: Callable[[int], int]) -> Callable[[Path], Path]:
    """Point the second entry of an index to a position made from the log's size."""

    def make(folder: Path) -> Path:
        partition(folder)
        content = bytearray((folder / INDEX).read_bytes())
        struct.pack_into(">i", content, 12, position(os.path.getsize(folder / LOG)))
        return put(folder, INDEX, content)

    return make


def index_ragged(folder: Path) -> Path:
    partition(folder)
    return put(folder, INDEX, (folder / INDEX).read_bytes() + b"\0\0\0")


def index_not_ascending(folder: Path) -> Path:
    partition(folder)
    content = bytearray((folder / INDEX).read_bytes())
    struct.pack_into(">i", content, len(content) - 8, -1)
    return put(folder, INDEX, content)


def time_index_not_ascending(folder: Path) -> Path:
    partition(folder)
    content = bytearray((folder / TIMEINDEX).read_bytes())
    struct.pack_into(">q", content, len(content) - 12, 1)
    return put(folder, TIMEINDEX, content)


def transaction_index_of_the_future(folder: Path) -> Path:
    content = bytearray((FIXTURES / "modern/tx-0/00000000000000000016.txnindex").read_bytes())
    content[34] = 3
    return put(folder, f"{FIRST}.txnindex", content)


PRINT, DEEP, SANITY = ("--print-data-log",), ("--deep-iteration",), ("--index-sanity-check",)
DEATHS = (
    Death("a log whose name is not a number", foreign_name),
    Death("a checkpoint whose name is not an offset and an epoch", foreign_checkpoint),
    Death("a file that is not there", absent),
    Death("a log of 2 GiB or more", larger_than_an_int),
    Death("zeros after the last batch, 18 bytes or more", zero_tail),
    Death("a negative length", negative_length),
    Death("a length too short for its magic", short_length, DEEP),
    Death("an unknown codec", unknown_codec),
    Death("an unknown codec in a message of magic 1", unknown_codec_of_a_message),
    Death("zstd in a message of magic 1", zstd_in_a_message, DEEP),
    Death("a record that is longer than its batch", record_too_long, DEEP),
    Death("a batch with fewer records than it declares", too_many_records, DEEP),
    Death("a batch with more records than it declares", too_few_records, DEEP),
    Death("a negative number of records", negative_count, DEEP),
    Death("gzip that does not decompress", broken_codec("modern/gzip-0", 5), DEEP),
    Death("snappy that does not decompress", broken_codec("modern/snappy-1", 5), DEEP),
    Death("lz4 that does not decompress", broken_codec("modern/lz4-broker-0", 5), DEEP),
    Death("zstd that does not decompress", broken_codec("modern/zstd-0", 5), DEEP),
    Death("gzip of magic 0 that does not decompress", broken_wrapper("legacy/v0-gzip-0"), DEEP),
    Death("snappy of magic 1 that does not decompress", broken_wrapper("legacy/v1-snappy-0"), DEEP),
    Death("lz4 of magic 0 that does not decompress", broken_wrapper("legacy/v0-lz4-0"), DEEP),
    Death("a transaction marker whose key is too short", control_with_a_short_key, DEEP),
    Death("a record without key under --offsets-decoder", null_group_key, ("--offsets-decoder",)),
    Death("an index whose log is missing", log_of_the_index_missing),
    Death("an index that is missing", index_missing),
    Death("a time index whose offset index is missing", index_of_the_time_index_missing),
    Death("an index entry behind the end of the log", index_entry(lambda size: size + 1)),
    Death("an index entry at the end of the log", index_entry(lambda size: size)),
    Death("an index entry with a negative position", index_entry(lambda size: -7)),
    Death("an index entry in the middle of a batch", index_entry(lambda size: 300)),
    Death("an index of a ragged size, sanity check", index_ragged, SANITY),
    Death("an index that does not ascend, sanity check", index_not_ascending, SANITY),
    Death("a time index that does not ascend, sanity check", time_index_not_ascending, SANITY),
    Death("a transaction index of a later version", transaction_index_of_the_future),
)
