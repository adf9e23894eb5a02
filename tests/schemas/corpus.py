"""The corpora of topics that real registries and serializers wrote, with what is right for every key and value."""

from __future__ import annotations

import base64
import functools
import gzip
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from klog.data_dir.partition import Partition
from klog.schemas.apicurio import read_journal
from klog.schemas.registry import Registry
from klog.schemas.schemas_topic import read_schemas_topic

from tests.conftest import CORPORA

REGISTRIES = ("confluent", "karapace", "apicurio")
Image = Callable[[str], Path]


class Truth(NamedTuple):
    """A key or a value of a corpus, and what is right for it: *side* `key` or `value`, *right* as the truth has it."""

    topic: str
    partition: int
    offset: int
    side: str
    right: dict[str, Any]

    @property
    def raw(self) -> bytes | None:
        return None if self.right.get("null") else base64.b64decode(self.right["raw"])

    def form(self, canonical: bool) -> Any:
        """The value in one form: the forms are equal where the truth has only one."""
        return self.right.get("canonical", self.right["plain"]) if canonical else self.right["plain"]


@functools.cache
def truth(name: str) -> dict[str, Any]:
    with gzip.open(CORPORA / "schemas" / f"{name}.truth.json.gz") as file:
        found: dict[str, Any] = json.load(file)
    return found


def sides(name: str) -> Iterator[Truth]:
    for record in truth(name)["records"]:
        for side in ("key", "value"):
            yield Truth(record["topic"], record["partition"], record["offset"], side, record[side])


def data(image: Image, name: str) -> Path:
    return image(f"schemas/{name}.tar.gz") / "data"


def registry(image: Image, name: str) -> Registry:
    log_dir = data(image, name)
    if name == "apicurio":
        return read_journal(Partition(str(log_dir / "kafkasql-journal-0")))
    return read_schemas_topic(Partition(str(log_dir / "_schemas-0")))


@functools.cache
def reference() -> ModuleType:
    """The corpora's own slow decoder."""
    spec = importlib.util.spec_from_file_location("schemas_reference", CORPORA / "schemas" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
