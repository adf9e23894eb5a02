"""The places of objects: a directory, or a bucket behind a URL.  They cannot write, and give keys no meaning.

store = open_store("house/tier")
for found in store.objects():
    print(found.key, found.size)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from klog.base.errors import KlogError
from klog.base.read_only import ReadableLog


class StoredObject(NamedTuple):
    """An object of a store.  *size*: bytes; None for anything that is not a file: a link to a directory, a pipe.

    *modified_ms*: when it was stored, not when its records were written.
    """

    key: str
    size: int | None
    modified_ms: int


class MissingObjectError(KlogError):
    """The store has no object of this key."""


class Store(Protocol):
    """A place with objects.  *uri*: as it was given.  Raises KlogError for whatever the place refuses."""

    uri: str

    def objects(self) -> Iterator[StoredObject]:
        """Yield every object, in no order."""

    def open(self, key: str, size: int | None = None) -> ReadableLog:
        """Open an object for reads of ranges; *size*: in bytes, if it is known.  Raises MissingObjectError."""

    def read(self, key: str, most: int) -> bytes:
        """Return an object as a whole; of one that is larger, *most* bytes and one more.  Raises MissingObjectError."""
