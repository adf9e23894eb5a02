"""How Java writes bytes, strings and floating-point numbers.  The expected texts are what Java 17 printed."""

from __future__ import annotations

import math
import random
import struct

import pytest
from klog.formats.java_text import double_text, json_double, json_string, utf8_text

REPLACED = {
    b"ab\xffcd": "ab�cd",
    b"\xc0\x80": "��",
    b"\xe0\x80\x80": "���",
    b"\xe4\xb8": "�",
    b"\xf0\x9f\x98A": "�A",
    b"\xf4\x90\x80\x80": "����",
    # encoded surrogates: one sign each, where Python alone would write one for each byte
    b"\xed\xa0\x80": "�",
    b"\xed\xa0": "�",
    b"\xed\xa0A": "�A",
    b"\xed\xbf\xbf\xed\xa0\x80": "��",
    b"\xed": "�",
    b"\xedA": "�A",
}


@pytest.mark.parametrize(("data", "text"), REPLACED.items(), ids=lambda given: repr(given))
def test_malformed_utf8_is_replaced_as_java_does(data: bytes, text: str) -> None:
    assert utf8_text(data) == text


def test_utf8_that_is_whole_stays() -> None:
    assert utf8_text("a\0é中😀".encode()) == "a\0é中😀"


def test_json_strings_escape_only_what_jackson_escapes() -> None:
    assert json_string('q" b\\ s/ \b\t\n\f\r \0\x1b\x1f\x7f é中😀\u2028') == (
        '"q\\" b\\\\ s/ \\b\\t\\n\\f\\r \\u0000\\u001B\\u001F\x7f é中😀\u2028"'
    )


DOUBLES = [
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (1.0, "1.0"),
    (0.001, "0.001"),
    (0.0009, "9.0E-4"),
    (9999999.0, "9999999.0"),
    (10000000.0, "1.0E7"),
    (1048576.5, "1048576.5"),
    (123456789.125, "1.23456789125E8"),
    (5e-324, "4.9E-324"),
    (1.7976931348623157e308, "1.7976931348623157E308"),
    (2.2250738585072014e-308, "2.2250738585072014E-308"),
    (9007199254740993.0, "9.007199254740992E15"),
    (float(2**63), "9.223372036854776E18"),
    (2e23, "2.0E23"),
]


@pytest.mark.parametrize(("value", "text"), DOUBLES)
def test_numbers_print_as_java_prints_them(value: float, text: str) -> None:
    assert double_text(value) == text


def test_every_number_reads_back_as_itself() -> None:
    """Whatever the digits, they must give the number: also at the ends of the range."""
    chance = random.Random(1)
    for _ in range(20_000):
        (value,) = struct.unpack(">d", chance.randbytes(8))
        if math.isfinite(value):
            assert float(double_text(value)) == value


def test_what_json_has_no_number_for_stands_in_quotes() -> None:
    given = [math.nan, math.inf, -math.inf, 1.5]
    assert [json_double(value) for value in given] == ['"NaN"', '"Infinity"', '"-Infinity"', "1.5"]
