"""Write docs/findings.md and the table in docs/doctor.md (`make completions`), from klog's own tables."""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "core"))

from klog.commands.audit.header_findings import HEADER_KINDS  # noqa: E402
from klog.commands.remote.remote_findings import REMOTE_KINDS  # noqa: E402
from klog.partition.start.start_reasons import REASONS  # noqa: E402
from klog.partition.verify.findings import KINDS  # noqa: E402

DOCTOR = os.path.join(ROOT, "docs", "doctor.md")

HEAD = """# Findings

The findings of `klog verify`, by id. Ids never change and are never reused, so scripts may rely on them. A *note* is
harmless; a *warning* or *damage* makes the exit code 4. A broker's reaction at its next start often depends on how it
was stopped and on the recovery point: `klog verify` then simulates the start, as `klog recover --like-broker` does,
and reports the result for the finding at hand.

Missing offsets are legal in a compacted topic. klog recognises a compacted topic by the cleaner's checkpoint, and by
`cleanup.policy` in the metadata log of the same log dir (`__cluster_metadata-0`), if that log is intact. If the topic
has no policy there, the broker's own `server.properties` decides, which klog cannot see: missing offsets are then a
warning (`offset-gap`).

A broker writes an index entry when it appends. An offset index entry has the position of the first batch of the
append and the last offset of the append (before 1.1 the first offset of the batch at the position). A time index
entry has the largest timestamp of a batch and the last offset of that batch, or (before 3.8) the offset of the record
with the timestamp. Any other entry is `index-inexact`, for example one with a flipped bit, even if all lookups give
the right result. klog does not judge the offsets of damaged batches, of compressed batches in the old message
formats, or of batches from which compaction has removed records.

`klog verify` names the command for each finding (`fix`). It names `--salvage` for a torn tail with intact batches
behind it, and no command for directories that no command repairs. If a command may lose something intact, a warning
precedes it. Each command repairs the finding that it is named for, or exits with 4 and reports the remaining problems
(such as an index of a segment whose log is damaged). If no command is named, klog cannot repair the finding, or has
no better repair than a broker ([recover.md](recover.md)).

| id | severity | meaning | a 4.x broker at its next start | repaired by |
|---|---|---|---|---|
"""


AUDIT = """
## What `klog audit` finds

These findings are not damage on the disk, and no command repairs them ([audit.md](audit.md)). In JSON, `count` is the
number of batches of a finding.

| id | severity | meaning | a 4.x broker |
|---|---|---|---|
"""


REMOTE = """
## What `klog remote verify` finds

These findings are about objects in remote storage and `__remote_log_metadata` ([remote.md](remote.md)); no command
repairs them. Faults that local files can have as well keep the ids above.

| id | severity | meaning | a broker |
|---|---|---|---|
"""


def text() -> str:
    """Return the whole page."""
    rows = [
        f"| `{kind.id}` | {kind.severity.value} | {kind.meaning} | {kind.broker} | {_command(kind.fix)} |"
        for kind in KINDS.values()
    ]
    of_audit = [
        f"| `{kind.id}` | {kind.severity.value} | {kind.meaning} | {kind.broker} |" for kind in HEADER_KINDS.values()
    ]
    of_remote = [
        f"| `{kind.id}` | {kind.severity.value} | {kind.meaning} | {kind.broker} |" for kind in REMOTE_KINDS.values()
    ]
    tables = ("\n".join(table) + "\n" for table in (rows, of_audit, of_remote))
    return "".join(head + table for head, table in zip((HEAD, AUDIT, REMOTE), tables, strict=True))


def _command(fix: str) -> str:
    command = fix.format(partition="PARTITION", log_dir="LOG_DIR", path="it")
    words, klog, rest = command.partition("klog ")
    return f"{words}`{klog}{rest}`" if klog else command


def doctor_text(page: str) -> str:
    """Return docs/doctor.md, now *page*, with the table of reasons as it should be: the last thing on the page."""
    head, line, _ = page.partition("| id | a broker | where it comes from | what helps |\n")
    rows = [f"| `{one.id}` | {one.broker} | {one.cause} | {one.cure} |" for one in REASONS.values()]
    return head + line + "|---|---|---|---|\n" + "\n".join(rows) + "\n"


def main() -> None:
    with open(os.path.join(ROOT, "docs", "findings.md"), "w") as file:
        file.write(text())
    with open(DOCTOR, encoding="utf-8") as file:
        page = doctor_text(file.read())
    with open(DOCTOR, "w", encoding="utf-8") as file:
        file.write(page)


if __name__ == "__main__":
    main()
