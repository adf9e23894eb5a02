"""Closes the objects that a test has opened: the readers of the program do that themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.tier.directory_store import DirectoryStore


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened: list[ReadOnlyFile] = []
    usual = DirectoryStore.open

    def remembered(store: DirectoryStore, key: str, size: int | None = None) -> ReadOnlyFile:
        opened.append(usual(store, key, size))
        return opened[-1]

    monkeypatch.setattr(DirectoryStore, "open", remembered)
    yield
    for one in opened:
        one.close()
