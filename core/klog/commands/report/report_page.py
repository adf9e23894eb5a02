"""The page: one HTML file that loads nothing, and whose structure no content of a disk can change.

The policy in it names the digest of klog's own script, so a browser runs no other.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pkgutil import get_data
from typing import NamedTuple
from xml.etree.ElementTree import Element

from klog.base.errors import counted
from klog.commands.report import page_sections
from klog.commands.report.html_elements import element, embedded_json, html, raw, time
from klog.commands.report.page_sections import MOST_ROWS, DamagedBytes, partition_row
from klog.commands.report.partition_strip_svg import PartitionStrip
from klog.commands.report.tables import Row, card_style


class VerdictState(StrEnum):
    """The result of a check, the worst first; `UNASKED`: the check needs something that is not there."""

    DAMAGE = "damage"
    WARNING = "warning"
    CLEAN = "clean"
    UNASKED = "unasked"


class VerdictLine(NamedTuple):
    """The result of one check.

    *check*: the command whose result it is.  *subject*: the checked thing; *said*: the result, both in klog's own
    words; *detail*: more, which may contain names of the disk.  *command*: shows the whole result, or mends it.
    """

    check: str
    subject: str
    state: VerdictState
    said: str
    detail: str = ""
    command: str | None = None


class Report(NamedTuple):
    """The content of a report, as JSON objects of the commands' own output.

    *created*: ms since the epoch.  *verdict*: the checks.  *counts*: findings by severity.  *next_commands*: the
    repairs, the first one first, each with its reason.  *findings*: those of `klog verify`, with the kind's `meaning`
    and their `node` and `log_dir`.  *space*: that of `klog space`; *reasons*: the meaning of each of its reasons.
    *events*: those of `klog timeline`.  *groups*: those of `klog groups`.  *transactions*: those of `klog
    transactions`, the hanging and the open ones first; *states*: the number of all transactions by state.  *problems*:
    sentences about unreadable parts.  *damaged*: the bytes of damage.
    """

    title: str
    version: str
    created: int
    log_dirs: Sequence[str]
    verdict: Sequence[VerdictLine]
    counts: Mapping[str, int]
    totals: Mapping[str, int]
    next_commands: Sequence[tuple[str, str]]
    findings: Sequence[Row]
    strips: Sequence[PartitionStrip]
    space: Row
    reasons: Mapping[str, str]
    events: Sequence[Row]
    groups: Sequence[Row]
    transactions: Sequence[Row]
    states: Mapping[str, int]
    problems: Sequence[str] = ()
    damaged: Sequence[DamagedBytes] = ()


_SECTIONS = (
    ("verdict", "Verdict"),
    ("space", "Space"),
    ("partitions", "Partitions"),
    ("timeline", "Timeline"),
    ("groups", "Groups"),
    ("transactions", "Transactions"),
    ("findings", "Findings"),
)
_SIGNS = {VerdictState.DAMAGE: "✗", VerdictState.WARNING: "▲", VerdictState.CLEAN: "✓", VerdictState.UNASKED: "–"}


def page(report: Report) -> Iterator[bytes]:
    """Yield the page in pieces."""
    script, style = _resource("page.js"), _resource("page.css") + card_style()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    head = element(
        "head",
        None,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", None, report.title),
        raw("style", {}, style),
    )
    yield f'<!DOCTYPE html>\n<html lang="en">{html(head)}<body>\n'.encode()
    for part in _body(report):
        yield html(part).encode("utf-8", "backslashreplace") + b"\n"
    yield b'<script type="application/json" id="data">'
    yield embedded_json(_data(report)).encode("ascii")
    yield f"</script>\n{html(raw('script', {}, script))}\n</body></html>\n".encode()


def _resource(name: str) -> str:
    return (get_data("klog.commands.report", name) or b"").decode("utf-8")


def _body(report: Report) -> Iterator[Element]:
    dirs, held = counted(len(report.log_dirs), "log dir"), counted(report.totals["partitions"], "partition")
    made = f"klog {report.version}, {time(report.created)}, {dirs}, {held}"
    yield element("header", None, element("h1", None, report.title), element("p", {"class": "faint"}, made))
    links = (
        element("a", {"href": f"#{anchor}"}, f"{heading}{f' {count}' if count else ''}")
        for (anchor, heading), count in zip(_SECTIONS, _counts(report), strict=True)
    )
    yield element("nav", {"aria-label": "Contents"}, *links)
    for (anchor, heading), content in zip(
        _SECTIONS,
        (
            _verdict(report),
            page_sections.space(report.space, report.reasons),
            page_sections.partitions(report.strips),
            page_sections.timeline(report.events, len(report.log_dirs)),
            page_sections.groups(report.groups),
            page_sections.transactions(report.transactions),
            page_sections.findings(report.findings, report.damaged),
        ),
        strict=True,
    ):
        title = element("h2", {"id": f"{anchor}-title"}, heading)
        yield element("section", {"id": anchor, "aria-labelledby": f"{anchor}-title"}, title, *content)
    yield element("footer", {"class": "faint"}, element("p", None, "Log dirs: " + ", ".join(report.log_dirs)))


def _counts(report: Report) -> tuple[str, ...]:
    """Return the count of each section, for the bar of contents."""
    unended = [f"{report.states[state]} {state}" for state in ("hanging", "open") if report.states.get(state)]
    problems = len(_problems(report))
    return (
        counted(problems, "problem") if problems else "clean",
        "",
        str(len(report.strips)),
        str(len(report.events)),
        str(len(report.groups)),
        ", ".join(unended) or str(sum(report.states.values())),
        str(len(report.findings)),
    )


def _problems(report: Report) -> list[str]:
    """Return the subjects of the checks that found something."""
    found = [one.subject for one in report.verdict if one.state in (VerdictState.DAMAGE, VerdictState.WARNING)]
    return list(dict.fromkeys(found)) + ["parts that could not be read"] * bool(report.problems)


def _verdict(report: Report) -> Iterator[Element]:
    problems = _problems(report)
    if problems:
        is_damage = any(one.state is VerdictState.DAMAGE for one in report.verdict)
        state, text = "damage" if is_damage else "warning", f"Not clean: {', '.join(problems)}."
    else:
        checks = counted(sum(one.state is VerdictState.CLEAN for one in report.verdict), "check")
        state, text = "clean", f"Clean: {checks} found nothing."
    yield element("p", {"class": f"state {state}"}, text)
    yield element("ul", {"class": "checks"}, *map(_line, report.verdict))
    for problem in report.problems:
        yield element("p", {"class": "warning"}, element("b", None, "Could not be read: "), problem)
    if report.next_commands:
        yield element("h3", None, "Next")
    for command, why in report.next_commands:
        yield element("pre", None, element("code", None, command))
        yield element("p", {"class": "faint"}, why)


def _line(one: VerdictLine) -> Element:
    sign = element("b", {"role": "img", "aria-label": one.state.value, "class": "sign"}, _SIGNS[one.state])
    told = f"{one.said}: {one.detail}" if one.detail else one.said
    command = [element("code", None, one.command)] if one.command is not None else []
    texts = element("b", None, one.subject), element("span", None, told)
    return element("li", {"class": one.state.value}, sign, *texts, *command)


def _data(report: Report) -> dict[str, object]:
    """Return the content of the page as a JSON object, without the pictures."""
    found = report._asdict()
    for member in ("strips", "reasons", "states"):
        del found[member]
    found["verdict"] = [one._asdict() for one in report.verdict]
    found["next_commands"] = [{"command": command, "why": why} for command, why in report.next_commands]
    rows = {member: found[member][:MOST_ROWS] for member in ("findings", "events", "groups", "transactions")}
    space = {member: value for member, value in report.space.items() if member != "segments"}
    return {**found, **rows, "space": space, "partitions": [partition_row(strip) for strip in report.strips]}
