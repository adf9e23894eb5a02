"""Log dirs with made batches: of random programs, in which a batch can be put into another partition as well."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from tests.oracles.plain.encode import Record, batch

MS = 1_790_000_000_000
_CRC, _COVERED = slice(17, 21), 21


class Cluster:
    """Partitions in memory: batches of each, whose offsets follow; `write` makes a log dir of them."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.partitions: dict[str, list[bytes]] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self.now = MS

    def add(
        self, name: str, producer: int = -1, records: int = 0, codec: str = "none", sequence: int | None = None
    ) -> bytes:
        """Append a batch of a producer to partition *name*; return it."""
        self.now += self.random.randrange(1, 50)
        count = records or self.random.randrange(1, 4)
        made = [
            Record(i, self.now + i, self.random.randbytes(6), self.random.randbytes(self.random.randrange(5, 40)))
            for i in range(count)
        ]
        base = -1
        if producer >= 0:
            base = self._sequences.get((name, producer), 0) if sequence is None else sequence
            self._sequences[name, producer] = (base + count) % 2**31
        data = batch(made, codec=codec, producer=(producer, 0 if producer >= 0 else -1, base))
        self.put(name, data)
        return data

    def put(self, name: str, data: bytes) -> None:
        """Append a batch that there is: only its base offset changes, as when a broker takes it."""
        some = self.partitions.setdefault(name, [])
        end = self.end(name)
        some.append(end.to_bytes(8, "big") + data[8:])

    def end(self, name: str) -> int:
        """Return the next offset of a partition."""
        some = self.partitions.get(name)
        return last_offset(some[-1]) + 1 if some else 0

    def offset(self, name: str, at: int) -> int:
        """Return the base offset of the batch with number *at* in a partition."""
        return int.from_bytes(self.partitions[name][at][:8], "big")

    def write(self, to: Path, segments: int = 1) -> Path:
        """Write a log dir."""
        for name, batches in self.partitions.items():
            directory = to / name
            directory.mkdir(parents=True)
            for some in _split(batches, segments):
                base = int.from_bytes(some[0][:8], "big")
                (directory / f"{base:020d}.log").write_bytes(b"".join(some))
        (to / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n")
        return to


def _split(batches: Sequence[bytes], parts: int) -> list[Sequence[bytes]]:
    size = -(-len(batches) // parts)
    return [batches[at : at + size] for at in range(0, len(batches), size)]


def last_offset(data: bytes) -> int:
    """Return the last offset of a batch."""
    return int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big")


def changed(data: bytes, at: int) -> bytes:
    """Return a batch with one bit of byte *at* flipped, and a checksum that fits."""
    other = bytearray(data)
    other[at] ^= 1
    other[_CRC] = crc32c(bytes(other[_COVERED:])).to_bytes(4, "big")
    return bytes(other)
