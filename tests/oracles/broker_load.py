"""A log dir after a broker's start and clean stop, in milliseconds; and the differences between two log dirs.

with Loader() as loader:
    loader.load(folder, {"log.index.interval.bytes": "512"}, now_ms=1_763_000_000_000)
differences(folder, other)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import crc32c

from tests.brokers.kafka import NEWEST, Jvm

SNAPSHOT_HEADER = struct.Struct(">hIi")
SNAPSHOT_ENTRY = 46
DEFAULTS: Mapping[str, str] = MappingProxyType({})
NO_CUTS: Mapping[str, int] = MappingProxyType({})
MARKER = ".kafka_cleanshutdown"


@dataclass(frozen=True)
class Outcome:
    """How a start ended.

    *state*: `ok` (started and stopped cleanly), `offline` (a broker would have gone on without this log dir), `died`
    (it would have been halted), `unclean stop` (no marker), `timeout`.  *error*: the class of the exception; *message*:
    its text.  Unless *ok*, the directory is as the failed start left it, which depends on the order of its partitions.
    """

    state: str
    error: str = ""
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.state == "ok"


class Loader(Jvm):
    """Kafka's LogManager in one JVM: loads every partition of a log dir as a broker at its start, then stops cleanly.

    Nothing else of a broker runs: no retention, no cleaner, no leader.  All partitions count as this broker's own, but
    one without `partition.metadata` is set aside as `…-stray`.  `__cluster_metadata-0` is not touched.
    """

    def __init__(self, version: str = NEWEST, seconds: float = 120) -> None:
        super().__init__(version, "LoadMany", seconds=seconds)

    def __enter__(self) -> Loader:
        return self

    def load(
        self,
        log_dir: Path,
        settings: Mapping[str, str] = DEFAULTS,
        *,
        now_ms: int | None = None,
        cuts: Mapping[str, int] = NO_CUTS,
    ) -> Outcome:
        """Start and stop on *log_dir*, at *now_ms* (None: the clock's); *settings*: broker properties by name.

        *cuts*: where partitions, by directory, are cut in between, as a follower cuts them.
        """
        given = [f"{name}={value}" for name, value in settings.items()]
        given += [f"cut:{directory}={offset}" for directory, offset in cuts.items()]
        answer = self._ask(str(log_dir), "" if now_ms is None else str(now_ms), *given)
        if answer is None:
            return Outcome("timeout")
        return Outcome(*(text.decode() for text in answer[1:]))


def differences(left: Path, right: Path) -> list[str]:
    """Return the files in which two log dirs, or two partitions, differ; sorted, one line each.

    Names and bytes count.  Allowed are, each for its reason: the lock, which is empty; the marker, which a stop writes
    and a repair must not; `….deleted`, which a broker leaves for a minute; the identity in the name of a `….<id>-stray`
    directory, which is drawn at random; the order of entries in snapshots and in the checkpoints of the log dir, which
    is that of Java's hash maps.
    """
    ours, theirs = _contents(left), _contents(right)
    found = []
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in theirs:
            found.append(f"{name}: only in {left}")
        elif name not in ours:
            found.append(f"{name}: only in {right}")
        elif ours[name] != theirs[name]:
            found.append(f"{name}: {_first_difference(ours[name], theirs[name])}")
    return found


def _contents(folder: Path) -> dict[str, bytes]:
    """Return the compared content of each file, by its path in *folder*; empty directories end in `/`."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = re.sub(r"\.[0-9a-f]{32}-stray(?=/|$)", ".<id>-stray", str(path.relative_to(folder)))
        if path.is_dir():
            if not any(path.iterdir()):
                found[name + "/"] = b""
        elif path.name not in (".lock", MARKER) and path.suffix != ".deleted":
            found[name] = _in_order(path)
    return found


def _in_order(path: Path) -> bytes:
    """Return the content of a file, with unordered parts sorted."""
    content = path.read_bytes()
    if path.suffix == ".snapshot":
        return _snapshot_in_order(content)
    if path.name.endswith("-offset-checkpoint"):
        lines = content.splitlines(keepends=True)
        return b"".join(lines[:2] + sorted(lines[2:]))
    return content


def _snapshot_in_order(content: bytes) -> bytes:
    """Return a producer snapshot with its entries sorted and a word for its CRC; other files unchanged."""
    if len(content) < SNAPSHOT_HEADER.size:
        return content
    version, crc, count = SNAPSHOT_HEADER.unpack_from(content)
    if count < 0 or len(content) != SNAPSHOT_HEADER.size + count * SNAPSHOT_ENTRY or crc != crc32c.crc32c(content[6:]):
        return content
    starts = range(SNAPSHOT_HEADER.size, len(content), SNAPSHOT_ENTRY)
    entries = sorted(content[at : at + SNAPSHOT_ENTRY] for at in starts)
    return struct.pack(">h", version) + b"CRC holds" + b"".join(entries)


def _first_difference(ours: bytes, theirs: bytes) -> str:
    """Return in words where two contents part."""
    shared = min(len(ours), len(theirs))
    at = next((at for at in range(shared) if ours[at] != theirs[at]), shared)
    if at == shared:
        return f"{len(ours)} and {len(theirs)} bytes, the same as far as both go"
    near = slice(max(at - 8, 0), at + 24)
    return f"{len(ours)} and {len(theirs)} bytes, from byte {at} on: {ours[near]!r} and {theirs[near]!r}"
