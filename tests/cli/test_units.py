"""Sizes, times, durations and keys as people write them."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from klog.base.errors import UsageError
from klog_cli.units import parse_duration, parse_key, parse_partition, parse_share, parse_size, parse_time

NOW = 1_795_254_454.586
MOMENT = 1_795_237_819_000  # 2026-11-21T05:10:19Z


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096b", 4096),
        ("64KiB", 65536),
        ("64kib", 65536),
        ("64KB", 65536),
        ("64k", 65536),
        ("64 KiB", 65536),
        (" 1G ", 1 << 30),
        ("1GiB", 1 << 30),
        ("2m", 2 << 20),
        ("3T", 3 << 40),
        ("1.5G", 3 << 29),
        ("0.5k", 512),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes(text: str, size: int) -> None:
    """Powers of 1024, whatever the unit is called: disks lie, brokers do not."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "k",
        "KiB",
        "-5",
        "+5",
        "5x",
        "5kk",
        "5 k b",
        "1e3",
        "0x10",
        "1,5G",
        "5.",
        ".5",
        "1.5.5",
        "five",
        "nan",
        "inf",
    ],
)
def test_what_is_no_size_says_what_one_looks_like(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a size: expected a number with a unit, such as 4096, 64KiB or 1G"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("500", 500),
        ("10s", 10_000),
        ("5m", 300_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1.5h", 5_400_000),
        ("10 S", 10_000),
        ("0", 0),
    ],
)
def test_durations(text: str, ms: int) -> None:
    """A bare number is ms, as in Kafka's own settings."""
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "h", "-5h", "5y", "1h30m", "5 minutes", "1e3s"])
def test_what_is_no_duration_says_what_one_looks_like(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a duration: expected .* 500ms, 10s, 5m, 24h or 7d"):
        parse_duration(text)


def no_note(text: str) -> None:
    raise AssertionError(f"said: {text}")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("-1", -1),
        ("1795254454586", 1795254454586),
        (" 1795254454586 ", 1795254454586),
        ("2026-11-21T05:10:19Z", MOMENT),
        ("2026-11-21T05:10:19z", MOMENT),
        ("2026-11-21 05:10:19+00:00", MOMENT),
        ("2026-11-21T06:10:19+01:00", MOMENT),
        ("2026-11-21T00:10:19-05:00", MOMENT),
        ("2026-11-21T05:10:19.123Z", MOMENT + 123),
        ("2026-11-21T05:10:19.000999Z", MOMENT + 1),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
        ("0001-01-01T00:00:00Z", -62135596800000),
        ("now", 1_795_254_454_586),
        ("2h ago", 1_795_254_454_586 - 7_200_000),
        ("500ms ago", 1_795_254_454_086),
        ("1.5h ago", 1_795_254_454_586 - 5_400_000),
        ("2h", 1_795_254_454_586 - 7_200_000),
        ("-2h", 1_795_254_454_586 - 7_200_000),
        ("05:10:19", MOMENT),
        ("5:10", MOMENT - 19_000),
        ("today", MOMENT - 18_619_000),
        ("yesterday", MOMENT - 18_619_000 - 86_400_000),
        ("yesterday 05:10:19.5", MOMENT + 500 - 86_400_000),
    ],
)
def test_times(text: str, ms: int) -> None:
    """There is no message if nothing had to be assumed."""
    assert parse_time(text, no_note, NOW) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [("2026-11-21T05:10:19", MOMENT), ("2026-11-21 05:10", MOMENT - 19_000), ("2026-11-21", MOMENT - 18_619_000)],
)
def test_a_time_without_a_zone_is_utc_and_that_is_said(text: str, ms: int) -> None:
    """Not the zone of the machine it happens to run on."""
    said: list[str] = []
    assert parse_time(text, said.append, NOW) == ms
    assert said == [f"{text} has no zone: UTC is assumed"]


def test_the_zone_of_the_machine_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        assert parse_time("2026-11-21T05:10:19", lambda text: None, NOW) == MOMENT
        assert parse_time("2h ago", no_note, NOW) == 1_795_254_454_586 - 7_200_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_now_is_the_clock_where_none_is_given() -> None:
    before = datetime.now(UTC)
    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=parse_time("now", no_note))
    assert before - timedelta(seconds=1) < found < before + timedelta(seconds=60)


@pytest.mark.parametrize(
    "text",
    ["", "ago", "h ago", "2026-13-01", "2026-11-21T25:00:00Z", "25:10", "yesterday 5", "1.5", "tomorrow ago", "-h"],
)
def test_what_is_no_time_says_what_one_looks_like(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a (time|duration): expected"):
        parse_time(text, lambda text: None, NOW)


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + ".5", "9" * 400 + "h"])
def test_numbers_beyond_all_sense_are_a_question_of_usage(text: str) -> None:
    """Not of arithmetic."""
    for parse in (parse_size, parse_duration, lambda given: parse_time(f"{given} ago", no_note, NOW)):
        with suppress(UsageError):
            parse(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("user-1", b"user-1"),
        ("", b""),
        ("größe", "größe".encode()),
        ("\udcff", b"\xff"),
        ("hex:00ff", b"\x00\xff"),
        ("hex:00 FF", b"\x00\xff"),
        ("hex:", b""),
        ("base64:AP8=", b"\x00\xff"),
        ("base64:", b""),
        ("HEX:00", b"HEX:00"),
        (" spaced ", b" spaced "),
    ],
)
def test_keys(text: str, key: bytes) -> None:
    """The text is unchanged, undecodable bytes of the command line included."""
    assert parse_key(text) == key


@pytest.mark.parametrize("text", ["hex:0", "hex:zz", "base64:AP8", "base64:???", "base64:A"])
def test_a_key_whose_encoding_is_broken_is_a_question_of_usage(text: str) -> None:
    with pytest.raises(UsageError, match=f"--key {text.replace('?', '.')}"):
        parse_key(text)


@pytest.mark.parametrize(("text", "share"), [("1", 1.0), ("0.05", 0.05), ("5%", 0.05), ("1/20", 0.05), ("100%", 1.0)])
def test_shares(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "0", "2", "1/0", "x", "-5%", "200%", "nan", "1/"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(UsageError, match="expected a part of one"):
        parse_share(text)


@pytest.mark.parametrize(
    ("text", "partition"),
    [
        ("3", 3),
        ("orders-3", ("orders", 3)),
        ("a-b-0", ("a-b", 0)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
    ],
)
def test_partitions(text: str, partition: object) -> None:
    assert parse_partition(text) == partition


@pytest.mark.parametrize("text", ["", "-3", "orders", "orders-", "orders-x", "4294967296", "a-4294967296", "orders-+3"])
def test_what_is_no_partition(text: str) -> None:
    with pytest.raises(UsageError, match="expected a number or a topic and a number"):
        parse_partition(text)
