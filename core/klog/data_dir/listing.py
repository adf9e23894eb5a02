"""Lists a directory that a broker writes: the log dir itself, or a partition's."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from klog.base.directory import list_directory
from klog.base.unusable import UNUSABLE
from klog.formats.names import FileName, Stage, parse_file


class BrokerFiles(NamedTuple):
    """The content of a log dir or a partition directory, by name.  *sizes*: bytes of its logs, by name.

    *unreadable*: the reason why it could not be listed, None when it could; all other fields are then empty.
    """

    files: tuple[FileName, ...] = ()
    directories: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    sizes: dict[str, int] = {}  # noqa: RUF012  # never changed
    unreadable: str | None = None


def list_broker_files(path: str) -> BrokerFiles:
    """List a directory."""
    try:
        found = list_directory(path, sized=".log")
    except OSError as error:
        UNUSABLE.refuse(path, error, "list")
        return BrokerFiles(unreadable=f"cannot be listed: {error.strerror}")
    return BrokerFiles(tuple(sorted(map(parse_file, found.files))), found.directories, found.others, found.sizes)


class BrokerDirectory:
    """A directory that is listed once, at the first access."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def _listing(self) -> BrokerFiles:
        return list_broker_files(self.path)

    @property
    def files(self) -> tuple[FileName, ...]:
        """The regular files of the directory itself, by name."""
        return self._listing.files

    @property
    def others(self) -> tuple[str, ...]:
        """Names of pipes, links to nothing and other special entries, which brokers ignore."""
        return self._listing.others

    @property
    def leftovers(self) -> tuple[FileName, ...]:
        """Files of interrupted or unfinished operations: `.deleted`, `.cleaned`, `.swap`, `.part`, `.tmp`."""
        return tuple(file for file in self.files if file.stage is not Stage.IN_USE)
