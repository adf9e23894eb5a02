"""What is raised in a process of Spark has to be text: names on a disk need not be, and Spark would wait for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from klog.errors import KlogError


@contextmanager
def in_text() -> Iterator[None]:
    """Let errors from the block, or from a function that this decorates, be ones that UTF-8 can say.

    PySpark: handle_worker_exception says that an error comes, fails to encode it, and the JVM waits for the rest.
    """
    try:
        yield
    except (KlogError, OSError) as error:
        said = str(error)
        text = said.encode("utf-8", "replace").decode()
        if text == said:
            raise
        raise type(error)(text) from None
