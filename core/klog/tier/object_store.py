"""Objects in a bucket, through obstore: `klog[remote]`.

The endpoint and the credentials come from the environment, as for other programs: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME …
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from klog.base.errors import KlogError, UnreadableError, UsageError
from klog.tier.stores import MissingObjectError, StoredObject

_RETRIES: Final = 2
_RETRIES_OF_READS: Final = 5
"""A command makes thousands of reads, several at once: one that a busy server refuses three times is no rarity."""
_PAUSE: Final = timedelta(milliseconds=100)
_LONGEST: Final = timedelta(seconds=60)
_VARIABLES: Final = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_ENDPOINT",
}
_CAUSES: Final = (
    re.compile(r"<Code>(\w+)</Code>"),
    re.compile(r'(?:message|error): "([^"\n]+)"'),
    re.compile(r"status code: ([^:\n]+)"),
)
_MOST_LETTERS: Final = 200
NEEDED: Final = "pip install 'klog[remote]'"
_PIECE_BYTES: Final = 256 << 10


class ObjectStore:
    """A bucket, or the part of it below a prefix.  Requests that a server refuses for now are repeated, with pauses.

    *in_order*: an object that is opened is mostly read from its start to its end, and gets one request for all of it.
    """

    def __init__(self, uri: str, *, in_order: bool = False) -> None:
        try:
            from obstore.store import from_url
        except ModuleNotFoundError as error:
            raise KlogError(f"{uri}: klog reads buckets with obstore; install it: {NEEDED}") from error
        self.uri, self._in_order = uri, in_order
        scheme = uri.partition(":")[0]
        self._advice = f"credentials come from {_VARIABLES[scheme]}"
        if not uri.removeprefix(f"{scheme}://").partition("/")[0]:
            raise UsageError(f"{uri}: no bucket; expected {scheme}://BUCKET or {scheme}://BUCKET/PREFIX")
        endpoint = os.environ.get("AWS_ENDPOINT_URL" if scheme == "s3" else "AZURE_STORAGE_ENDPOINT", "")
        backoff = {"base": 2, "init_backoff": _PAUSE, "max_backoff": timedelta(seconds=5)}

        def client(retries: int) -> Any:
            settings: dict[str, Any] = {
                "client_options": {"allow_http": endpoint.startswith("http://")},
                "retry_config": {"max_retries": retries, "retry_timeout": _LONGEST, "backoff": backoff},
            }
            return from_url(uri, **settings)

        with self._named(""):
            self._bucket, self._reads = client(_RETRIES), client(_RETRIES_OF_READS)

    @contextmanager
    def _named(self, key: str) -> Iterator[None]:
        """Raise what the server refuses as one line."""
        from obstore import exceptions

        where = f"{self.uri.rstrip('/')}/{key}" if key else self.uri
        try:
            yield
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            raise MissingObjectError(f"{where}: no such object, or no such bucket") from error
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise UnreadableError(f"{where}: {_reason(str(error))}; {self._advice}") from error

    def objects(self) -> Iterator[StoredObject]:
        """Yield every object, in the order of the keys."""
        with self._named(""):
            for page in self._bucket.list(chunk_size=1000):
                for one in page:
                    yield StoredObject(one["path"], one["size"], int(one["last_modified"].timestamp() * 1000))

    def open(self, key: str, size: int | None = None) -> ObjectRange | ObjectStream:
        """Return an object for reads of ranges; without *size* one request asks for it."""
        if size is None:
            with self._named(key):
                size = self._bucket.head(key)["size"]
        path = f"{self.uri.rstrip('/')}/{key}"
        if self._in_order:
            return ObjectStream(path, size, lambda start: self._from(key, start))
        return ObjectRange(path, size, lambda start, end: self._range(key, start, end))

    def _from(self, key: str, start: int) -> Iterator[memoryview]:
        """Yield the bytes of an object from *start* on, in one request."""
        with self._named(key):
            found = self._reads.get(key, options={"range": {"offset": start}} if start else None)
            for piece in found.stream(min_chunk_size=_PIECE_BYTES):
                yield memoryview(piece)

    def _range(self, key: str, start: int, end: int) -> bytes:
        with self._named(key):
            return bytes(self._reads.get_range(key, start=start, end=end))

    def read(self, key: str, most: int) -> bytes:
        """Return an object in one request: see `Store.read`."""
        with self._named(key):
            found = self._reads.get(key)
            if found.meta["size"] <= most:
                return bytes(found.bytes())
        return self._range(key, 0, most + 1)


def _reason(message: str) -> str:
    """Return the cause in a message of obstore, which has it between details of the request."""
    if "169.254.169.254" in message:
        return "no credentials"
    for cause in _CAUSES:
        if found := cause.search(message):
            return found[1].strip()
    first = message.partition("\n")[0]
    return first if len(first) <= _MOST_LETTERS else f"{first[:_MOST_LETTERS]}…"


class ObjectRange:
    """The bytes of an object by position; each read is one request.  See `klog.base.read_only.ReadableLog`."""

    def __init__(self, path: str, size: int, read_range: Callable[[int, int], bytes]) -> None:
        self.path, self.size, self._read_range = path, size, read_range

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on; fewer only at the end.  Raises UnreadableError."""
        end = min(position + size, self.size)
        return self._read_range(position, end) if position < end else b""

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes, fewer only at the end.  Raises OSError."""
        try:
            data = self.read(position, len(view))
        except KlogError as error:
            raise OSError(str(error)) from error
        view[: len(data)] = data
        return len(data)

    def next_data(self, position: int) -> int:
        """Return *position*: objects have no holes."""
        return position

    def close(self) -> None:
        """Do nothing: no connection belongs to an object."""


class ObjectStream:
    """An object read by one request while each read begins within the one before, or at its end.

    Readers of logs take the rest of a window again, a batch without its end: the pieces of the last read are kept. A
    read elsewhere begins another request.  A connection that breaks is replaced by one from the same position on, if it
    brought something.
    """

    def __init__(self, path: str, size: int, stream_from: Callable[[int], Iterator[memoryview]]) -> None:
        self.path, self.size, self._stream_from = path, size, stream_from
        self._stream: Iterator[memoryview] | None = None
        self._pieces: list[memoryview] = []
        self._start = self._end = 0

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on; fewer only at the end.  Raises UnreadableError."""
        data = bytearray(max(0, min(size, self.size - position)))
        return bytes(data[: self._fill(position, memoryview(data))])

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes, fewer only at the end.  Raises OSError."""
        try:
            return self._fill(position, view[: max(0, self.size - position)])
        except KlogError as error:
            raise OSError(str(error)) from error

    def _fill(self, position: int, view: memoryview) -> int:
        while self._pieces and self._start + len(self._pieces[0]) <= position:
            self._start += len(self._pieces.pop(0))
        done = 0
        while done < len(view):
            found = self._kept(position + done) or self._receive(position + done)
            if not found:
                break
            piece = found[: len(view) - done]
            view[done : done + len(piece)] = piece
            done += len(piece)
        return done

    def _kept(self, position: int) -> memoryview | None:
        """Return the bytes of the piece that has *position*, from there on; None if no piece has it."""
        start = self._start
        for piece in self._pieces:
            if start <= position < start + len(piece):
                return piece[position - start :]
            start += len(piece)
        return None

    def _receive(self, position: int) -> memoryview | None:
        """Return the piece that begins at *position*; None if the object ends there.  Raises UnreadableError."""
        if position != self._end:
            self._stream, self._pieces = None, []
            self._start = self._end = position
        while True:
            is_new = self._stream is None
            self._stream = self._stream or self._stream_from(position)
            try:
                piece = next(self._stream, None)
            except UnreadableError:
                self._stream = None
                if is_new:
                    raise
                continue
            if piece:
                self._pieces.append(piece)
                self._end += len(piece)
            return piece

    def next_data(self, position: int) -> int:
        """Return *position*: objects have no holes."""
        return position

    def close(self) -> None:
        """Give up the request."""
        self._stream, self._pieces = None, []
        self._start = self._end = 0
