"""The foreign place of a twin, and its home: signs, and the verdict on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klog.commands.audit.audited_partitions import AuditPartition
from klog.commands.audit.batches import BatchContent
from klog.commands.audit.topic_profiles import COMMON_SHARE, RARE_SHARE, TopicProfile
from klog.commands.audit.twins import TwinPlace

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
