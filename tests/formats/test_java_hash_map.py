"""The order of a Java HashMap.

The orders below are what Java 17 printed: a HashMap filled by computeIfAbsent, as Kafka's dump tool fills it.  Those of
put are compared where replicas are placed, with Kafka's own placer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from klog.formats.java_hash_map import java_hash, order_of_compute


def of_directories(i: int) -> str:
    return f"/data/orders-{i}/00000000000000000000.index"


def of_segments(i: int) -> str:
    return f"/data/orders-3/{1841 * i:020}.index"


def of_one_hash(i: int) -> str:
    """Names that all have the same hash in Java: `Aa` and `BB` do."""
    return "/" + "".join("BB" if i >> bit & 1 else "Aa" for bit in range(8))


def of_other_scripts(i: int) -> str:
    return f"/데이터/é-{i}/😀.index"


Name = Callable[[int], str]
JAVA = [
    (of_directories, 2, (1,), [1, 0]),
    (of_directories, 12, (1,), [9, 7, 3, 8, 6, 4, 2, 1, 0, 11, 5, 10]),
    (of_directories, 13, (1,), [9, 7, 3, 8, 6, 4, 2, 1, 0, 11, 5, 12, 10]),
    (of_directories, 13, (2,), [9, 7, 4, 2, 0, 11, 3, 8, 6, 1, 5, 12, 10]),
    (of_directories, 14, (1,), [9, 7, 4, 2, 0, 11, 13, 3, 8, 6, 1, 5, 12, 10]),
    (of_segments, 12, (2,), [5, 3, 0, 11, 10, 4, 6, 1, 9, 2, 7, 8]),
    (of_segments, 13, (1,), [12, 5, 3, 0, 11, 10, 4, 6, 1, 9, 2, 7, 8]),
    (of_segments, 13, (2,), [10, 6, 1, 9, 7, 12, 5, 3, 0, 11, 4, 2, 8]),
    (of_segments, 14, (2,), [10, 6, 1, 9, 7, 12, 13, 5, 3, 0, 11, 4, 2, 8]),
    (of_one_hash, 2, (1,), [1, 0]),
    (of_one_hash, 8, (1,), [7, 6, 5, 4, 3, 2, 1, 0]),
    (of_one_hash, 9, (1,), [8, 7, 6, 5, 4, 3, 2, 1, 0]),
    (of_one_hash, 10, (1,), [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
]
JAVA_CHECKSUMS = [
    (of_directories, 25, (1,), 0x930309EC),
    (of_directories, 25, (2,), 0xA5974A16),
    (of_directories, 26, (1, 3), 0x1386BA66),
    (of_directories, 49, (1,), 0x1820A2C6),
    (of_directories, 49, (2,), 0x6B325F9C),
    (of_directories, 97, (1, 3), 0xF3EE3031),
    (of_directories, 97, (2,), 0x4EA36DA8),
    (of_directories, 200, (1,), 0xAFF3DE28),
    (of_segments, 25, (1, 3), 0xAEA83456),
    (of_segments, 25, (2,), 0x669CD4E2),
    (of_segments, 49, (1,), 0x8C172225),
    (of_segments, 97, (2,), 0x737AF8F4),
    (of_segments, 200, (2,), 0x525FC35E),
    (of_other_scripts, 9, (1,), 0x4FE0C7D0),
    (of_other_scripts, 26, (2,), 0x6EDBC295),
    (of_other_scripts, 97, (1,), 0xB74834AA),
    (of_other_scripts, 97, (2,), 0xA6D331A2),
]


@pytest.mark.parametrize(("name", "count", "findings", "order"), JAVA)
def test_files_come_in_the_order_of_a_java_hash_map(
    name: Name, count: int, findings: tuple[int, ...], order: list[int]
) -> None:
    """Byte for byte means the order of files, too; when the table doubles depends on how many findings each has."""
    given = [(name(i), findings[i % len(findings)]) for i in range(count)]
    assert order_of_compute(given) == [name(i) for i in order]


@pytest.mark.parametrize(("name", "count", "findings", "checksum"), JAVA_CHECKSUMS)
def test_many_files_come_in_that_order_too(name: Name, count: int, findings: tuple[int, ...], checksum: int) -> None:
    order = order_of_compute((name(i), findings[i % len(findings)]) for i in range(count))
    assert zlib.crc32("\n".join(order).encode()) == checksum


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("/data/orders-3/00000000000000001841.index", 639493078),
        ("é中😀", 27946695),
        ("polygenelubricants", 2147483648),
    ],
)
def test_strings_hash_as_in_java(text: str, value: int) -> None:
    """Over 16-bit units: a letter beyond the first plane counts as two."""
    assert java_hash(text) == value


def test_no_name_is_lost_however_many_share_a_bucket() -> None:
    """From 64 buckets on Java makes a tree of a full one, whose order is another; still each file is named once."""
    names = [of_one_hash(i) for i in range(256)]
    assert sorted(order_of_compute((name, 1) for name in names)) == sorted(names)
    assert order_of_compute([]) == []


def test_a_name_that_is_no_utf_8_has_a_place() -> None:
    assert order_of_compute([("/data/\udcff.index", 1)]) == ["/data/\udcff.index"]
