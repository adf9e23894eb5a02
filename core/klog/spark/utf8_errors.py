"""Makes exceptions in Spark's processes UTF-8: file names may be other bytes, and Spark would wait forever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from klog.base.errors import KlogError


@contextmanager
def in_text() -> Iterator[None]:
    """Make the exceptions of a block, or of a decorated function, encodable in UTF-8.

    PySpark: handle_worker_exception announces an error, fails to encode it, and the JVM waits for the rest.
    """
    try:
        yield
    except (KlogError, OSError) as error:
        said = str(error)
        text = said.encode("utf-8", "replace").decode()
        if text == said:
            raise
        raise type(error)(text) from None
