"""Kafka's own cache of remote segments, its check of lineages, and its partitioner, in one JVM."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from tests.brokers.kafka import NEWEST, Jvm


class RemoteLogOracle(Jvm):
    """The package-private classes of a broker, called by reflection."""

    def __init__(self, version: str = NEWEST) -> None:
        super().__init__(version, "CacheRemoteLog")

    def __enter__(self) -> RemoteLogOracle:
        return self

    def _answer(self, *request: str) -> tuple[int, str, str, str]:
        answer = self._ask(*request)
        assert answer is not None
        return (answer[0], *(text.decode() for text in answer[1:]))  # type: ignore[return-value]

    def cache(
        self, values: Iterable[bytes], queries: Iterable[tuple[int, int]], *, initialized: bool
    ) -> tuple[list[str], list[str], list[str]]:
        """Put records into a fresh cache; return each one's exception or "-", the content, and the ids that are found.

        *queries*: pairs of epoch and offset.
        """
        asked = ",".join(f"{epoch}:{offset}" for epoch, offset in queries)
        texts = [base64.b64encode(value).decode() for value in values]
        _, outcomes, content, found = self._answer("cache", str(initialized).lower(), asked, *texts)
        return outcomes.splitlines(), content.splitlines(), found.splitlines()

    def is_within(self, segment: bytes, epochs: Sequence[tuple[int, int]], log_end: int) -> bool:
        """Whether a segment, as the value of its first record, is within a lineage."""
        lineage = ",".join(f"{epoch}={start}" for epoch, start in epochs)
        return bool(self._answer("within", str(log_end), lineage, base64.b64encode(segment).decode())[0])

    def metadata_partitions(self, count: int, partitions: Iterable[tuple[str, int]]) -> list[int]:
        """Return the metadata partition of each, by topic id and number."""
        asked = [f"{topic_id}:{number}" for topic_id, number in partitions]
        return [int(one) for one in self._answer("partition", str(count), *asked)[1].split()]
