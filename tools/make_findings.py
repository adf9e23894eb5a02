"""Write docs/findings.md and the table in docs/doctor.md (`make completions`), from klog's own tables."""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "core"))

from klog.commands.audit.header_findings import HEADER_KINDS  # noqa: E402
from klog.partition.start.start_reasons import REASONS  # noqa: E402
from klog.partition.verify.findings import KINDS  # noqa: E402

DOCTOR = os.path.join(ROOT, "docs", "doctor.md")

HEAD = """# Findings

Everything that `klog verify` can find, by id. Ids never change and are never reused, so scripts may rely on them. A
*note* is harmless; a *warning* or *damage* makes the exit code 4. What a broker does at its next start often
depends on how it was stopped and on the recovery point: `klog verify` then plays the start, as `klog recover
--like-broker` does, and says what it comes to for the case at hand.

Missing offsets are legal in a compacted topic. klog knows compacted topics from the cleaner's checkpoint, and from
`cleanup.policy` in the metadata log of the same log dir (`__cluster_metadata-0`), if that log is intact. If no
policy was set there, the broker's own `server.properties` decides, which klog cannot see: missing offsets are then
a warning (`offset-gap`).

A broker writes an index entry when it appends. An offset index entry has the position where the append begins and
the offset with which it ends (a batch's last; before 1.1 the first of the batch at the position). A time index entry
has a batch's largest timestamp, and the batch's last offset or (before 3.8) that of the record with the timestamp. Any
other entry is `index-inexact`, such as one with a flipped bit, even if all lookups come out right. Not judged are
offsets of batches that are damaged, that hold old messages in compressed form, or that compaction has thinned out.

`klog verify` names the command for the case at hand (`fix`): `--salvage` for a torn tail with intact batches behind
it, none for directories that no command repairs, and a warning in front of the command if it may lose something
intact. Each command repairs the finding that it is named for, or exits with 4 and says what is left (such as an
index of a segment whose log is damaged). If no command is named, klog can do nothing about it, or nothing better
than what brokers do ([recover.md](recover.md)).

| id | severity | what it is | a broker of 4.x at its next start | repaired by |
|---|---|---|---|---|
"""


AUDIT = """
## What `klog audit` finds

Nothing of this is damage on the disk, and no command repairs it ([audit.md](audit.md)). In its JSON, `count` says how
many batches a finding is about.

| id | severity | what it is | what a broker of 4.x does about it |
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
    return HEAD + "\n".join(rows) + "\n" + AUDIT + "\n".join(of_audit) + "\n"


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
