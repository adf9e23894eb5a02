"""Each partitioner against real clients, and against its definition."""

from __future__ import annotations

import json
import re
import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.cluster.partitioners import MOST_PARTITIONS, NAMES, PARTITIONERS, RULES, partitioner, table_rows
from klog.kernel import KEY_FORMS, read_key

from tests.brokers import kafka
from tests.cluster.partitioning import plain
from tests.conftest import CORPORA, ROOT, run_klog

# The clients of the corpus, and their treatment of an empty and a null key: a partition that is given by the key, or
# one at random.
CLIENTS = {
    "java 4.3.1 default": ("java", False, True),
    "java 2.8.2 default": ("java", False, True),
    "kafka-python": ("java", False, True),
    "aiokafka": ("java", False, True),
    "librdkafka murmur2": ("java", False, False),
    "librdkafka murmur2_random": ("java", False, True),
    "librdkafka default": ("librdkafka", True, True),
    "librdkafka consistent_random": ("librdkafka", True, True),
    "librdkafka consistent": ("consistent", False, False),
    "librdkafka fnv1a": ("fnv1a", False, False),
    "librdkafka fnv1a_random": ("fnv1a", False, True),
}
NO_RULE = {"java 4.3.1 RoundRobinPartitioner", "librdkafka random"}


@pytest.mark.corpora
def test_every_client_key_and_number_of_partitions_is_as_real_brokers_acknowledged() -> None:
    """One key in the wrong place, and an operator looks for a record where it is not."""
    vectors = json.loads((CORPORA / "replicas" / "partition-vectors.json").read_text())
    keys = [bytes.fromhex(key) for key in vectors["keys"]]
    compared = 0
    for case, seen in vectors["seen"].items():
        client, _, count = case.rpartition(" n=")
        if client in NO_RULE:
            continue
        name, empty_is_random, null_is_random = CLIENTS[client]
        one, partitions = partitioner(name), int(count)
        for key, acknowledged in zip(keys, seen, strict=False):
            wanted = None if not key and empty_is_random else acknowledged
            assert one.partition(key, partitions) == wanted, (case, key)
            compared += 1
        if null_is_random:
            assert one.null == "random" or one.others is not None, case
        else:
            assert set(seen[len(keys) :]) == {one.partition(b"", partitions)}, case
            assert one.null == "as an empty key" or one.others is not None, case
    assert compared == 199 * 31


@pytest.mark.corpora
@pytest.mark.parametrize("partitions", [7, 12, 50])
def test_the_command_says_what_the_clients_did(partitions: int) -> None:
    """The way from the option to the kernel and back is part of the answer."""
    vectors = json.loads((CORPORA / "replicas" / "partition-vectors.json").read_text())
    arguments = ("--as", "hex", "--partitions", str(partitions), "--output", "jsonl")
    lines = run_klog("partition", *vectors["keys"], *arguments, "--null").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["partitions"] for row in rows] == [partitions] * 200
    for client, name in (
        ("java 4.3.1 default", "java"),
        ("librdkafka default", "librdkafka"),
        ("librdkafka fnv1a", "fnv1a"),
    ):
        if (seen := vectors["seen"].get(f"{client} n={partitions}")) is None:
            continue
        wanted = list(seen[:199])
        wanted[0] = None if name == "librdkafka" else wanted[0]
        assert [row["partition"][name] for row in rows[:199]] == wanted
    assert rows[199]["key"] is None
    consistent, fnv1a = (partitioner(name).partition(b"", partitions) for name in ("consistent", "fnv1a"))
    nulls = {"consistent": consistent, "fnv1a": fnv1a}
    assert rows[199]["partition"] == {name: nulls.get(name) for name in NAMES}


@given(st.binary(max_size=300), st.one_of(st.integers(1, 100), st.integers(1, MOST_PARTITIONS)))
def test_every_rule_equals_its_definition(key: bytes, partitions: int) -> None:
    """Whatever the length of the key: its last bytes are where implementations differ."""
    for one in PARTITIONERS:
        if key or one.empty == "hashed":
            assert one.partition(key, partitions) == plain.partition(one.name, key, partitions), one.name


def test_the_hash_without_an_absolute_value_goes_to_the_remainder_of_two_to_the_31() -> None:
    """Java has no -(-2^31); what librdkafka and Sarama do there is to divide 2^31."""
    assert plain.absolute(0x80000000) == 2**31
    found = {h: plain.absolute(h) for h in (0, 1, 0x7FFFFFFF, 0x80000001, 0xFFFFFFFF)}
    assert found == {0: 0, 1: 1, 0x7FFFFFFF: 2**31 - 1, 0x80000001: 2**31 - 1, 0xFFFFFFFF: 1}


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_are_what_big_endian_bytes_are(number: int) -> None:
    """Beyond 32 bits only a long takes them."""
    text = str(number).encode()
    assert read_key(text, KEY_FORMS.index("int64")) == struct.pack(">q", number)
    short = struct.pack(">i", number) if -(2**31) <= number < 2**31 else None
    assert read_key(text, KEY_FORMS.index("int32")) == short


@pytest.mark.parametrize(
    ("form", "text"),
    [
        *(("int32", text) for text in ("", "-", "+", "2147483648", "-2147483649", "1.0", " 1", "0x1", "٣", "9" * 40)),
        *(("int64", text) for text in ("9223372036854775808", "-9223372036854775809", "18446744073709551617")),
        *(("hex", text) for text in ("f", "0g", "0x", " ff")),
        *(("base64", text) for text in ("YQ", "YQ=", "Y===", "YQ==YQ==", "Y Q=", "Y-Q=", "====", "=")),
    ],
)
def test_what_is_no_key_in_its_form_is_none(form: str, text: str) -> None:
    """A number that wraps would name a partition, and the wrong one."""
    assert read_key(text.encode(), KEY_FORMS.index(form)) is None


@given(st.binary(max_size=70))
def test_hex_and_base64_give_the_bytes_back(key: bytes) -> None:
    import base64

    assert read_key(key.hex().encode(), KEY_FORMS.index("hex")) == key
    assert read_key(key.hex().upper().encode(), KEY_FORMS.index("hex")) == key
    assert read_key(base64.b64encode(key), KEY_FORMS.index("base64")) == key


@pytest.mark.kafka
def test_numbers_are_what_kafkas_serializers_make_of_them() -> None:
    """Kafka's IntegerSerializer and LongSerializer, and the partition of their keys by Kafka's own partitioner."""
    shorts = [0, 1, -1, 42, 255, 256, -129, 65536, 2**31 - 1, -(2**31), 123456789]
    longs = [*shorts, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 1234567890123456789]
    asked = [*(("int32", one) for one in shorts), *(("int64", one) for one in longs)]
    lines = "".join(f"{form} {number} 12\n" for form, number in asked)
    program = kafka.program(kafka.NEWEST, "SerializeNumbers")
    done = subprocess.run(program, input=lines, capture_output=True, text=True, check=True, timeout=120)
    answers = [line.split() for line in done.stdout.splitlines()]
    assert len(answers) == len(asked)
    for (form, number), (serialized, partition) in zip(asked, answers, strict=True):
        key = read_key(str(number).encode(), KEY_FORMS.index(form))
        assert key == bytes.fromhex(serialized), (form, number)
        assert partitioner("java").partition(key, 12) == int(partition)
        shown = run_klog("partition", "--partitions", "12", "--partitioner", "java", "--as", form, "--", str(number))
        assert shown.stdout == f"{partition}\n".encode()


def test_the_page_and_the_help_have_the_table() -> None:
    """There is one table; what people read is made of it, or held against it here."""
    page = (ROOT / "docs/partition.md").read_text(encoding="utf-8")
    rows = [
        tuple(cell.strip() for cell in row)
        for row in re.findall(r"^\| `(.*?)` \| `(.*?)` \|(.*?)\|(.*?)\|(.*?)\|$", page, re.MULTILINE)
    ]
    assert rows == table_rows()
    for one in PARTITIONERS:
        assert one.others is None or one.others in page
    shown = run_klog("partition", "--help").stdout.decode()
    for name, rule, clients, _, _ in table_rows():
        assert re.search(rf"^ +{re.escape(name)} +{re.escape(rule)} +{re.escape(clients)}$", shown, re.MULTILINE)
    assert {one.rule for one in PARTITIONERS} == set(range(len(RULES)))
