"""Write docs/findings.md (`make completions`): everything that `klog verify` can find, from its own table."""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "core"))

from klog.verify.findings import KINDS  # noqa: E402

HEAD = """# Findings

What `klog verify` can find, by id. Ids never change, and none is used again for something else, so scripts may rely on
them. A *note* is nothing to worry about; a *warning* or *damage* makes the exit code 4. What a broker would do at its
next start often depends on how it was stopped and on the recovery point: `klog verify` says it for the case at hand.

Missing offsets are legal in a compacted topic. The cleaner's checkpoint tells which those are, and `cleanup.policy` in
the metadata log of the same log dir (`__cluster_metadata-0`), as long as that log is whole. Where nobody has set a
policy, the broker's own `server.properties` decides, which klog does not see: then they are a warning (`offset-gap`).

`klog verify` names the command for the case at hand (`fix`): `--salvage` for a torn tail with intact batches behind
it, none for directories that no repair touches, words in front of the command where it may cost something intact. Each
command mends what it is named for, or leaves with 4 and says that it is left (an index of a segment whose log is
damaged). Without a command klog can do nothing about it, or nothing that is better than what brokers do (`recover.md`).

| id | severity | what it is | a broker of 4.x at its next start | repaired by |
|---|---|---|---|---|
"""


def text() -> str:
    """Return the whole page."""
    rows = [
        f"| `{kind.id}` | {kind.severity.value} | {kind.meaning} | {kind.broker} | {_command(kind.fix)} |"
        for kind in KINDS.values()
    ]
    return HEAD + "\n".join(rows) + "\n"


def _command(fix: str) -> str:
    command = fix.format(partition="PARTITION", log_dir="LOG_DIR", path="it")
    words, klog, rest = command.partition("klog ")
    return f"{words}`{klog}{rest}`" if klog else command


def main() -> None:
    with open(os.path.join(ROOT, "docs", "findings.md"), "w") as file:
        file.write(text())


if __name__ == "__main__":
    main()
