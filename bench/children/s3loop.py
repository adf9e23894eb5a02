"""Get all objects of a bucket, eight at once: ``s3loop.py BUCKET``; ``s3loop.py BUCKET FOLDER`` puts a folder there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from obstore.store import from_url

AT_ONCE = 8
PIECE_BYTES = 8 << 20


def get(store: Any, key: str) -> int:
    """Read an object as a stream; return its size."""
    return sum(len(piece) for piece in store.get(key).stream(min_chunk_size=1 << 20))


def pieces(path: Path) -> Iterator[bytes]:
    """Yield a file piece by piece."""
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def main() -> None:
    """Do it."""
    store: Any = from_url(f"s3://{sys.argv[1]}", client_options={"allow_http": True, "timeout": "600s"})
    if len(sys.argv) > 2:
        folder = Path(sys.argv[2])
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                store.put(path.relative_to(folder).as_posix(), pieces(path))
        return
    keys = [one["path"] for page in store.list() for one in page]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        print(sum(pool.map(lambda key: get(store, key), keys)))


main()
