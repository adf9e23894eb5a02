"""The keys that most records of a partition have: exactly, or from a sample with a bound for the error."""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.commands.space.sampling import Sample, SampleReader, draw, estimate_ratio
from klog.data_dir.partition import Partition
from klog.kernel import KeySet, Profile
from klog.log.records import RecordFilter

_ALL: Final = 1 << 20
_KEPT_BYTES: Final = 128
_CANDIDATES: Final = 8
"""The factor by which more keys are counted again than requested: in another sample their order may differ."""


class KeyShare(NamedTuple):
    """A key: about how many *records* of the partition have it, and their *share* of all.

    *start*: the first 128 of its *length* bytes.  *error*: the share is off by this much at most, to both sides, in 19
    of 20 cases; 0 if all records were counted.
    """

    start: bytes
    length: int
    records: int
    share: float
    error: float


class FrequentKeys(NamedTuple):
    """The most frequent *keys*; *sampled*: the fraction that was read.  *problems*: the unreadable parts."""

    keys: tuple[KeyShare, ...]
    sampled: float
    problems: tuple[str, ...]


_Found = list[tuple[int, int, bytes, bytes]]
"""Keys as a profile has them: count, length, the first 128 bytes, digest."""


def find_frequent_keys(partition: Partition, most: int, fraction: float) -> FrequentKeys:
    """Return the *most* frequent keys of a partition, from a *fraction* of its log; 1: all of it, exactly.

    Two passes over the same stretches: one finds the candidates in memory of a fixed size, the other counts them.  Only
    the start of keys with more than 128 bytes is known, and with such a candidate counts may be a bit too low.
    """
    sample, reader, profile = draw([partition], fraction), SampleReader(), Profile(bytes(16))
    records = []
    for stretch in sample.stretches:
        before = profile.records
        for window in reader.rows(stretch):
            profile.add(window)
        records.append(profile.records - before)
    found = _candidates(profile, most, sample.whole)
    counts, missed = _count(found, sample, reader)
    total = sum(records) / sample.fraction
    shares = []
    for _, length, start, digest in found:
        share = estimate_ratio(list(zip(counts[digest], records, strict=True)), sample.fraction)
        error = share.error + missed / max(sum(records), 1)
        shares.append(KeyShare(start, length, round(share.ratio * total), share.ratio, error))
    shares.sort(key=lambda one: (-one.records, one.start))
    return FrequentKeys(tuple(shares[:most]), sample.fraction, tuple(dict.fromkeys(reader.problems)))


def _candidates(profile: Profile, most: int, whole: bool) -> _Found:
    """Return every key that may be among the *most* frequent ones; of a part of a log rather more."""
    found = profile.top(_ALL)
    if profile.error and len(found) > most:
        found = [one for one in found if one[0] + profile.error >= found[most - 1][0]]
    return found if whole else found[: most * _CANDIDATES]


def _count(found: _Found, sample: Sample, reader: SampleReader) -> tuple[dict[bytes, list[int]], int]:
    """Return how many records of each stretch have each key, and how many may be missing of one."""
    only = RecordFilter(keys=KeySet([start for _, length, start, _ in found if length <= _KEPT_BYTES]))
    is_known = all(length <= _KEPT_BYTES for _, length, _, _ in found)
    profile, missed = Profile(bytes(16)), 0
    counts = {digest: [0] * len(sample.stretches) for _, _, _, digest in found}
    for at, stretch in enumerate(sample.stretches):
        profile.clear()
        for window in reader.rows(stretch):
            if is_known:
                only.keep(window)
            profile.add(window)
        missed += profile.error
        for count, _, _, digest in profile.top(_ALL):
            if digest in counts:
                counts[digest][at] = count
    return counts, missed
