"""Write docs/faults.md: single faults, the result of Kafka's own loader for each, and the result after klog.  Needs
Java."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.faults.single_faults import FAULTS, FILES, STOPS, UNREADABLE, Cell, play

PAGE = Path(__file__).parents[1] / "docs" / "faults.md"
HEAD = """# One fault in one file

This page shows how a start of Kafka 4.3.1 reacts to a log dir in which one file has one fault, and how it reacts after
`klog verify` and `klog recover --apply`. The faults are: a flipped bit in the middle; a block of 512 bytes there of
zeros or of junk (all of a smaller file); the last third truncated; a block there that cannot be read (EIO). The log dir
has one partition of 648 records, and no metadata log. Kafka's own `LogManager` loads it, after a kill and after a clean
stop; if both give the same result, there is one answer. `tools/make_faults.py` writes this page from its measurements,
and a test compares them.

*Offline*: a broker continues without this log dir, or stops if it has no other. *Dies*: it stops at once. Lost records
of a damaged log are in the damaged batch and behind it; `klog recover` shows how many of them `--salvage` would keep
([recover.md](recover.md)). A flipped bit in a checkpoint may change the name of a topic into another one: the file is
then still valid, and no check finds the fault.

*Unreadable* simulates a bad sector of a disk, for as long as the file keeps its inode; the system reads pages of 4 KiB,
so more than the block is lost. `klog verify` names the file and the error, and checks all other files. If the logs
determine the content of the file, `klog recover` replaces it and keeps the unreadable file as the original, under a
second name. The lost block of a log stays lost: `--salvage` keeps the batches around it.

| file | fault | Kafka alone | `klog verify` | Kafka after `klog recover --apply` |
|---|---|---|---|---|
"""
_ENDS = {"ok": "starts", "offline": "offline", "died": "dies"}


def _start(state: str, lost: int) -> str:
    return _ENDS[state] + (f", {lost} records lost" if lost else "")


def _words(cell: Cell) -> tuple[str, str, str]:
    return (
        _start(cell.did.state, cell.whole - cell.alone),
        "finds it" if cell.verified.exit_code else "finds nothing",
        _start(cell.did_helped.state, cell.whole - cell.helped),
    )


def text(folder: Path) -> str:
    """Return the page, from log dirs that are made, damaged and started in *folder*."""
    rows = []
    for pattern in FILES:
        for fault in (*FAULTS, UNREADABLE):
            found = []
            for stop in STOPS:
                place = folder / f"{len(rows)}-{stop}"
                place.mkdir()
                found.append(_words(play(place, pattern, fault, stop)))
            cells = [
                killed if killed == clean else f"{killed} (after a clean stop: {clean})"
                for killed, clean in zip(*found, strict=True)
            ]
            rows.append(f"| `{pattern.split('/')[-1]}` | {fault} | {' | '.join(cells)} |\n")
    return HEAD + "".join(rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(text(Path(folder)))


if __name__ == "__main__":
    main()
