"""Findings as lines for people, their severity in colour on a terminal."""

from __future__ import annotations

from klog.partition.verify.findings import Finding, Severity

from klog_cli import output

_COLOURS = {Severity.DAMAGE.value: "31", Severity.WARNING.value: "33", Severity.NOTE.value: "34"}


def finding_line(finding: Finding) -> str:
    """Return *finding* as a printable line: severity, id, place, message."""
    place = finding.file.rpartition("/")[2]
    if finding.position is not None:
        place += f" @ {finding.position}"
    if finding.offset is not None:
        place += f" (offset {finding.offset})"
    return output.printable(f"{finding.severity.value:<8}{finding.id:<22}{place}: {finding.message}")


def coloured(line: str) -> str:
    """Return a printable *line* with the severity at its beginning in colour, if stdout takes colours."""
    severity = line.split(maxsplit=1)[0] if line.strip() else ""
    if severity not in _COLOURS or not output.takes_colour():
        return line
    return line.replace(severity, f"\x1b[{_COLOURS[severity]}m{severity}\x1b[0m", 1)
