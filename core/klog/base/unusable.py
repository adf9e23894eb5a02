"""Files, directories and blocks that the system refused to this process, and malformed files.

An unreadable file is not an absent file. Many commands can do without a file: a reader scans where an index is missing.
All code that opens, lists, reads and parses files therefore notes refusals here; a command that did without the file
still names it, and its exit code reports it.  `klog_cli.app` prints the names at the end of each command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from klog.base.errors import UnreadableError

MOST_NAMED = 100
"""The most paths that are kept with their names; the others are counted."""


class Unusable:
    """An unusable file or directory.  *is_unreadable*: the system refused it; otherwise it is malformed."""

    def __init__(self, path: str, message: str, *, is_unreadable: bool) -> None:
        self.path, self.message, self.is_unreadable = path, message, is_unreadable


class Unusables:
    """Paths that could not be used, each once: *found*, by absolute path."""

    def __init__(self) -> None:
        self.found: dict[str, Unusable] = {}
        self._printed: set[str] = set()
        self.more = self.refusals = 0
        self._latest = ""

    def __bool__(self) -> bool:
        return bool(self.found)

    def refuse(self, path: str, error: OSError, doing: str) -> None:
        """Note that the system refused *path*; nothing if there is no such file, or no longer.  *doing*: `open`."""
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            self.refusals += 1
            self._latest = f"{path}: cannot {doing}: {error.strerror}"
            self.note(Unusable(path, self._latest, is_unreadable=True))

    def note(self, one: Unusable) -> None:
        """Note an unusable file, unless its path is noted already."""
        key = os.path.abspath(one.path)
        if key in self.found:
            return
        if len(self.found) < MOST_NAMED:
            self.found[key] = one
        else:
            self.more += 1

    def check_read(self, refusals: int, otherwise: str) -> None:
        """Raise UnreadableError if the system has refused anything since *refusals* was counted.

        For code that restores data: it must not take an unreadable file for an absent one.  *otherwise*: the advice in
        the message.
        """
        if self.refusals > refusals:
            raise UnreadableError(f"{self._latest}; {otherwise}")

    def settle(self, *paths: str) -> None:
        """Forget *paths*, and what is below them: a plan has replaced or kept them."""
        if self.found:
            places = {os.path.abspath(path) for path in paths}
            for key in [key for key in self.found if not places.isdisjoint(_above(key))]:
                del self.found[key]

    def note_output(self, said: bytes) -> None:
        """Note that a command has printed *said*, so that the paths in it are not named again.

        A path that only begins a longer one in it has not been named.
        """
        self._printed.update(one.path for one in self.found.values() if _is_named(one.path, said))

    def unnamed(self) -> list[Unusable]:
        """Return the files that no output has named."""
        return [one for one in self.found.values() if one.path not in self._printed]

    def named(self) -> list[Unusable]:
        """Return all noted files, in the order of the notes."""
        return list(self.found.values())

    def clear(self) -> None:
        """Forget everything: a command begins."""
        self.found.clear()
        self._printed.clear()
        self.more = self.refusals = 0


def _is_named(path: str, said: bytes) -> bool:
    name = os.fsencode(path)
    if name not in said:
        return False
    import re  # late: few commands meet a file that they cannot use

    return re.search(re.escape(name) + rb"(?![\w/-]|\.\w)", said) is not None


def _above(path: str) -> Iterator[str]:
    """Yield *path* and each directory above it."""
    while path != os.path.dirname(path):
        yield path
        path = os.path.dirname(path)


UNUSABLE = Unusables()
"""The paths of this process; worker processes hand theirs back with their results."""
