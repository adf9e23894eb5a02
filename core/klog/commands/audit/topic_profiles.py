"""The profile of a topic's records: whether their keys are where murmur2 puts them, and their schema ids.

Some batches of each partition are judged, from the first segment and the last: the same ones in each run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from klog.base.errors import KlogError
from klog.commands.audit.batches import RecordSigns
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.jobs.runner import TaskResult, json_result
from klog.kernel import Window, record_signs
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.records import BatchRun
from klog.log.segment import Segment

SAMPLE_BATCHES: Final = 512
"""The number of judged batches of a topic, larger for very many partitions."""
LEAST_SAMPLE: Final = 4
FEWEST_JUDGED: Final = 30
LEAST_FITTING: Final = 0.9
"""Keys are evidence if at least 30 batches with keys were judged, and nine of ten have all in their partition."""
RARE_SHARE: Final = 0.001
COMMON_SHARE: Final = 0.1
"""A schema id is foreign that fewer than one in a thousand values of the topic have, and a tenth of another one's."""


class SampleTask(NamedTuple):
    """A partition to take a sample of: the place of its *topic*, its first and last *logs*, batches at *most*.

    *partition*, *partitions*: as BatchTask has them.
    """

    topic: int
    logs: Sequence[str]
    most: int
    partition: int
    partitions: int


class TopicProfile(NamedTuple):
    """The results of a topic's sample.

    *judged*: batches with keys; *fitting*: those whose keys all belong to their partition.  *schemas*: values by schema
    id, of *values*.
    """

    partitions: int
    judged: int = 0
    fitting: int = 0
    values: int = 0
    schemas: Mapping[int, int] = {}  # never changed

    @property
    def keys_tell(self) -> bool:
        """Whether a batch whose keys belong elsewhere is out of place."""
        return self.partitions > 1 and self.judged >= FEWEST_JUDGED and self.fitting >= LEAST_FITTING * self.judged

    def schema_share(self, schema: int, besides: RecordSigns | None = None) -> float:
        """Return the share of values that have a schema id, without those of a batch *besides*."""
        own, values = (besides.framed, besides.values) if besides is not None else (0, 0)
        rest = self.values - values
        return max(self.schemas.get(schema, 0) - own, 0) / rest if rest > 0 else 0.0

    @property
    def usual_schemas(self) -> list[int]:
        """The schema ids that are not foreign, ascending."""
        return sorted(one for one, count in self.schemas.items() if count >= RARE_SHARE * self.values)


def sample_partitions(unit: Sequence[SampleTask], max_batch_bytes: int = MAX_BATCH_BYTES) -> Iterator[TaskResult]:
    """Take samples: an answer `sample` for each task, with the number of its topic.

    Neither content nor unreadable files raise an error.
    """
    for task in unit:
        signs: list[RecordSigns] = []
        half = -(-task.most // 2) if len(task.logs) > 1 else task.most
        for path, most in zip(dict.fromkeys((task.logs[0], task.logs[-1])), (half, task.most - half), strict=False):
            try:
                signs += islice(_signs(path, task, max_batch_bytes), most)
            except KlogError:
                continue
        yield json_result("sample", signs, task.topic)


def _signs(path: str, task: SampleTask, max_batch_bytes: int) -> Iterator[RecordSigns]:
    codecs = Decompressor(max_batch_bytes).functions
    for run in Segment(path).runs(max_batch_bytes=max_batch_bytes, window=Window(1, 256, 1)):
        if isinstance(run, Damage) or run.damage:
            continue
        for _, signs in run_signs(run, codecs, task.partition, task.partitions):
            yield signs


def run_signs(
    run: BatchRun, codecs: Any, partition: int, partitions: int, usual: bytes | None = None
) -> Iterator[tuple[int, RecordSigns]]:
    """Yield (row of the window, signs) of the batches of a run; see `kernel.record_signs` for *usual*."""
    first = run.first
    while first < run.end:
        ready = run.window.decompress(first, run.end, codecs)
        for i, *counts in record_signs(run.window, first, ready, partition, partitions, usual):
            yield i, RecordSigns(*counts)
        first = max(ready, first + 1)  # a batch that cannot be decompressed is no evidence


def topic_profile(partitions: int, samples: Sequence[Sequence[int]]) -> TopicProfile:
    """Return the profile of a topic from the signs of its sample."""
    judged = fitting = values = 0
    schemas: Counter[int] = Counter()
    for signs in (RecordSigns(*one) for one in samples):
        judged += signs.keys > 0
        fitting += 0 < signs.keys == signs.here
        values += signs.values
        if signs.schema >= 0:
            schemas[signs.schema] += signs.framed
    return TopicProfile(partitions, judged, fitting, values, schemas)
