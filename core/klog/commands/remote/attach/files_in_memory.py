"""Files of a partition that are made in memory, and become changes of a draft."""

from __future__ import annotations

from klog.change.plan.draft import Draft
from klog.formats.names import SEGMENT_KINDS, FileKind, parse_file


class FilesInMemory:
    """An `AppendTarget`: the contents of new files by name."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Append to a log, which is made when it is first named."""
        self.content[name] = self.content.get(name, b"") + bytes(data)

    def put(self, name: str, content: bytes) -> None:
        """Give a small file this content."""
        self.content[name] = content

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""
        self.content.pop(name, None)

    def draft(self, draft: Draft, directory: str, now_ns: int) -> None:
        """Put the files into *draft*: each log before its indexes, snapshots behind them, then the epochs."""
        for name in sorted(self.content, key=_order):
            draft.put(f"{directory}/{name}", [self.content[name]], modified_ns=now_ns)


def _order(name: str) -> tuple[bool, bool, int, int]:
    file = parse_file(name)
    kinds = (*SEGMENT_KINDS, FileKind.SNAPSHOT)
    rank = kinds.index(file.kind) if file.kind in kinds else len(kinds)
    return file.offset is None, file.kind is FileKind.SNAPSHOT, file.offset or 0, rank
