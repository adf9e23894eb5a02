"""The base of classes that a `with` block closes."""

from __future__ import annotations

from typing import Self


class Closing:
    """An object that `close` ends, as does the end of its `with` block."""

    def close(self) -> None:
        """Release what it holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
