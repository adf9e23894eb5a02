"""A finding as a line, for people."""

from __future__ import annotations

from klog.verify.findings import Finding

from klog_cli import output


def finding_line(finding: Finding) -> str:
    """Return a finding as a line: how bad it is, of which kind, where, and in words."""
    place = finding.file.rpartition("/")[2]
    if finding.position is not None:
        place += f" @ {finding.position}"
    if finding.offset is not None:
        place += f" (offset {finding.offset})"
    return output.printable(f"{finding.severity.value:<8}{finding.id:<22}{place}: {finding.message}")
