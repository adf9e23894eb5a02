"""The foreign place of a twin, and its home: signs, and the verdict on them.

Signs compare a batch with the profile of a topic: whether its keys are where murmur2 puts them, and its schema ids.
For the profile some batches of each partition are judged, from the first segment and the last: the same ones each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from klog.base.errors import KlogError
from klog.commands.audit.audited_partitions import AuditPartition
from klog.commands.audit.batches import BatchContent, RecordSigns
from klog.commands.audit.twins import TwinPlace
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


CONFIRMED, LIKELY, POSSIBLE = "confirmed", "likely", "possible"
CONFIDENCES: Final = (CONFIRMED, LIKELY, POSSIBLE)
"""The strongest first."""
SIGNS_WITHOUT_TWIN: Final = 2
"""The number of signs that make a batch without a twin a possible one."""


class Evidence(NamedTuple):
    """The facts about a batch at one place.

    *begins_late*: it is the first of its producer in the partition, nothing was cut off before it, and its sequence is
    above 0.  *profile*: of its topic; *elsewhere*: of the topics that may be its home.
    """

    content: BatchContent
    begins_late: bool
    profile: TopicProfile
    elsewhere: Sequence[TopicProfile]


def begins_late(evidence: Evidence) -> bool:
    """Whether a producer's first batch in the partition does not begin with sequence 0."""
    return evidence.begins_late


def has_keys_of_elsewhere(evidence: Evidence) -> bool:
    """Whether all keys of the batch belong to other partitions, in a topic whose keys follow murmur2."""
    signs = evidence.content.signs
    return signs is not None and evidence.profile.keys_tell and signs.keys > 0 == signs.here


def has_foreign_schema(evidence: Evidence) -> bool:
    """Whether the values have a schema id that hardly any other value of the topic has, but many of another topic."""
    signs = evidence.content.signs
    if signs is None or signs.schema < 0:
        return False
    return evidence.profile.schema_share(signs.schema, signs) < RARE_SHARE and any(
        one.schema_share(signs.schema) >= COMMON_SHARE for one in evidence.elsewhere
    )


SIGNS: Final[tuple[tuple[str, Callable[[Evidence], bool]], ...]] = (
    ("sequence-begins-late", begins_late),
    ("key-elsewhere", has_keys_of_elsewhere),
    ("schema-foreign", has_foreign_schema),
)
"""The signs of a foreign place, by their names in `reasons`."""


def signs_at(evidence: Evidence) -> tuple[str, ...]:
    """Return the names of the signs that a batch shows at its place."""
    return tuple(name for name, is_there in SIGNS if is_there(evidence))


class TwinVerdict(NamedTuple):
    """A foreign place, the reasons, and its home; None: undecided, and *place* represents the *undecided* as well."""

    confidence: str
    place: TwinPlace
    home: TwinPlace | None
    signs: tuple[str, ...]
    undecided: tuple[TwinPlace, ...] = ()


def judge(classes: Sequence[Sequence[TwinPlace]], signs: dict[TwinPlace, tuple[str, ...]]) -> list[TwinVerdict]:
    """Return the verdicts on the places of a twin; those of one class are legal copies of each other.

    A place is foreign if it shows a sign that another place does not show, and none that only the other shows.  If no
    sign decides, legal copies outweigh a single place.
    """
    shown = [frozenset(name for place in some for name in signs[place]) for some in classes]
    found: list[TwinVerdict] = []
    undecided: list[int] = []
    for i, some in enumerate(classes):
        homes = [k for k in range(len(classes)) if shown[k] < shown[i]]
        if not homes:
            undecided.append(i)
            continue
        home = min(homes, key=lambda k: (len(shown[k]), -len(classes[k]), _order(classes[k][0])))
        found += [TwinVerdict(CONFIRMED, place, classes[home][0], signs[place]) for place in some]
    if len(undecided) > 1:
        found += _undecided([classes[i] for i in undecided], signs)
    return found


def _undecided(classes: Sequence[Sequence[TwinPlace]], signs: dict[TwinPlace, tuple[str, ...]]) -> list[TwinVerdict]:
    mirrored = [some for some in classes if len({place.partition for place in some}) > 1]
    if len(mirrored) == 1:
        home = mirrored[0][0]
        singles = [place for some in classes if some is not mirrored[0] for place in some]
        return [TwinVerdict(LIKELY, place, home, signs[place]) for place in singles]
    places = sorted((place for some in classes for place in some), key=_order)
    return [TwinVerdict(LIKELY, places[-1], None, signs[places[-1]], tuple(places[:-1]))]


def _order(place: TwinPlace) -> tuple[int, int]:
    return place.partition, place.number


def is_at_least(confidence: str, least: str) -> bool:
    """Whether a row is shown with `--min-confidence` *least*."""
    return CONFIDENCES.index(confidence) <= CONFIDENCES.index(least)


def begins_at_zero(partition: AuditPartition) -> bool:
    """Whether nothing was cut off the front of a partition, so far as its directory shows."""
    segments = partition.directory.segments
    return partition.log_start == 0 and bool(segments) and segments[0].base_offset == 0
