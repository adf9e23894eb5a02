"""The page of a report: whole without script, and the same elements whatever the disk is called."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from html.parser import HTMLParser

import pytest
from klog.commands.report.page_sections import MOST_PICTURES
from klog.commands.report.partition_strip_svg import PartitionStrip, StripSegment, StripSpan
from klog.commands.report.report_page import Report, VerdictLine, VerdictState, page

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"' onload='alert(1)",
    "]]>-->*/</style><b>",
    "a\u2028b\u2029c",
    "\u202eevil\u2066x\u200f",
    "\x00\x07\x1b[31m\r\n",
    "\ud800 lone",
    "javascript:alert(1)//",
    "&lt;b&gt;&amp;",
    "x" * 100_000,
)


def made(name: str) -> Report:
    """A report on a disk where every text is *name*."""
    strip = PartitionStrip(
        name,
        0,
        name,
        name,
        5,
        90,
        1000,
        (StripSegment(0, 50, 600, ("none", "lz4")), StripSegment(50, 90, 400, ("zstd",))),
        (StripSpan("gap", 10, 20), StripSpan("damage", 60, 60, name), StripSpan("aborted", 1, 5, name)),
        (("log-start", 5), ("high-watermark", 80), ("log-end", 90)),
        ((0, 0), (3, 40)),
        7,
        (1, 2),
        1,
    )
    row = {"topic": name, "partition": 0, "offset": 5}
    return Report(
        name,
        "1.0",
        1_700_000_000_000,
        [name],
        [
            VerdictLine("verify", "Data", VerdictState.DAMAGE, "damaged in 1 place", name, name),
            VerdictLine("doctor", "Next start", VerdictState.CLEAN, "a broker 4.3 starts", command=name),
            VerdictLine("replicas", "Copies", VerdictState.UNASKED, "not compared"),
        ],
        {"damage": 1, "warning": 2, "note": 0},
        {"partitions": 1, "segments": 2, "bytes": 1000, "batches": 9, "records": 80},
        [(name, name)],
        [{**row, "id": "bad-crc", "severity": "damage", "file": name, "message": name, "meaning": "m", "fix": name}],
        [strip],
        {
            "topics": [{"topic": name, "bytes": 1000, "partitions": 1, "reasons": {"active": 400}}],
            "reasons": {"active": 1},
        },
        {"active": "the segment that is written to"},
        [
            {**row, "time": 1_700_000_000_000, "clock": "broker", "kind": "roll", "message": name},
            {"time": 1_700_000_000_001, "clock": "broker", "kind": "commit", "message": name, "group": name},
            {"time": 1_700_000_000_002, "clock": "broker", "kind": "txn-begin", "transactional_id": name},
        ],
        [
            {
                "group": name,
                "type": "classic",
                "state": None,
                "offsets": [{**row, "log_end": 9, "lag": 4}],
                "members": [{"member_id": name, "client_id": name, "host": name}],
            }
        ],
        [
            {
                "state": "hanging",
                "transactional_id": name,
                "producer_id": 4,
                "abort": name,
                "began": 2**62,
                "partitions": [{**row, "first_offset": 1, "last_offset": 4}],
            }
        ],
        {"hanging": 1},
    )


class Outline(HTMLParser):
    """Counts elements with the names of their attributes, and keeps scripts, and texts without the style."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.values: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._in_script = self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag, tuple(name for name, _ in attrs)] += 1
        self.values += attrs
        self._in_script, self._in_style = tag == "script", tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)
        elif not self._in_style:
            self.text += data


def outline(report: Report) -> Outline:
    """Parse the page of *report*."""
    parsed = Outline()
    parsed.feed(b"".join(page(report)).decode())
    parsed.close()
    return parsed


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_makes_an_element_an_attribute_or_a_script(name: str) -> None:
    """A topic, group or key may be called anything, and whoever opens the report may be a broker's administrator."""
    plain, hostile = outline(made("orders")), outline(made(name))
    plain_elements, elements = plain.elements, hostile.elements
    # Labels in pictures are left out where a name is too long for its place.
    assert {kind for kind in elements if kind[0] != "text"} == {kind for kind in plain_elements if kind[0] != "text"}
    assert all(elements[kind] == count for kind, count in plain_elements.items() if kind[0] != "text")
    assert len(hostile.scripts) == len(plain.scripts) == 2
    assert hostile.scripts[1] == plain.scripts[1]
    assert not [name for name, _ in hostile.values if name.startswith("on")]
    assert {value for name, value in hostile.values if name in ("href", "src")} == {
        value for name, value in plain.values if name in ("href", "src")
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_no_control_character_or_direction_is_left(name: str) -> None:
    """An invisible character in a name is shown: otherwise one topic could look like another."""
    content = b"".join(page(made(name))).decode()
    assert not [char for char in "\x00\x07\x1b\r\u2028\u2029\u202e\u2066\u200f" if char in content]


def test_the_data_are_those_of_the_report() -> None:
    """A script, or a colleague with jq, reads the same from the page."""
    data = json.loads(outline(made("</script>\u2028")).scripts[0])
    assert data["title"] == data["log_dirs"][0] == data["findings"][0]["file"] == "</script>\u2028"
    assert data["partitions"][0]["log_end"] == 90
    assert data["next_commands"] == [{"command": "</script>\u2028", "why": "</script>\u2028"}]


def test_the_policy_lets_klogs_own_script_run_and_nothing_else() -> None:
    """Nothing is loaded from anywhere, and the digest is that of the script in the page."""
    parsed = outline(made("orders"))
    policy = next(value for name, value in parsed.values if name == "content" and "default-src" in (value or ""))
    digest = base64.b64encode(hashlib.sha256(parsed.scripts[1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    assert len(parsed.scripts[1]) < 20_000
    assert not [value for name, value in parsed.values if name in ("href", "src") and not (value or "").startswith("#")]


def test_every_section_is_there_and_says_what_is_in_it() -> None:
    """Each has its id, its heading, and a table that needs no script."""
    parsed = outline(made("orders"))
    ids = [value for name, value in parsed.values if name == "id"]
    sections = ["verdict", "space", "partitions", "timeline", "groups", "transactions", "findings"]
    assert [one for one in ids if one in sections] == sections
    for text in (
        "Not clean: Data.",
        "damaged in 1 place: orders",
        "orders-0",
        "hanging",
        "roll",
        "active",
        "7 more spans",
    ):
        assert text in parsed.text


def test_of_many_partitions_the_worst_are_drawn_and_all_are_listed() -> None:
    """Five thousand pictures would be of no use; the table has them all."""
    report = made("orders")
    strips = [report.strips[0]._replace(partition=number, problems=(number == 777, 0)) for number in range(1000)]
    parsed = outline(report._replace(strips=strips))
    pictures = [value for name, value in parsed.values if name == "class" and value == "strip"]
    assert len(pictures) == MOST_PICTURES
    rows = parsed.elements["tr", ()]
    assert rows > 1000
    assert parsed.text.index("orders-777") < parsed.text.index("orders-0")


def test_every_shape_of_a_picture_has_a_title() -> None:
    """Titles help readers who cannot see colours, or anything."""
    parsed = outline(made("orders"))
    assert parsed.elements["svg", ("class", "viewbox", "preserveaspectratio", "role", "aria-label")] == 1
    for span in ("no records 10–19", "damage at 60", "aborted transaction 1–4", "leader epoch 3", "log start 5"):
        assert span in parsed.text
