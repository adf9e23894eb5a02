"""Which place of a twin is foreign: each rule by itself, without a log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from klog.commands.audit.batches import BatchContent, RecordSigns
from klog.commands.audit.twin_verdict import CONFIRMED, LIKELY, Evidence, TopicProfile, has_keys_of_elsewhere, judge
from klog.commands.audit.twins import TwinPlace

LATE, KEYS = "sequence-begins-late", "key-elsewhere"


def at(partition: int, number: int = 0) -> TwinPlace:
    return TwinPlace(partition, number, partition, 0, 1, 0)


def test_two_places_with_signs_of_their_own_are_undecided() -> None:
    """Each shows a sign that the other lacks: neither can be home, though one has more signs."""
    one, other = at(0), at(1)
    (found,) = judge([[one], [other]], {one: (LATE,), other: (KEYS, "schema-foreign")})
    assert (found.confidence, found.place, found.home, found.undecided) == (LIKELY, other, None, (one,))


def test_home_is_where_legal_copies_are_if_signs_tell_no_more() -> None:
    """A foreign place, a place without a sign, and two legal copies without one: these two outweigh the single one."""
    foreign, single, copy, mirror = at(0), at(1), at(2), at(3)
    signs: dict[TwinPlace, tuple[str, ...]] = {foreign: (LATE,), single: (), copy: (), mirror: ()}
    found = judge([[foreign], [single], [copy, mirror]], signs)
    confirmed = [one for one in found if one.confidence == CONFIRMED]
    assert [(one.place, one.home) for one in confirmed] == [(foreign, copy)]
    assert [(one.place, one.home) for one in found if one.confidence == LIKELY] == [(single, copy)]


@pytest.mark.parametrize(("keys", "here", "tells"), [(3, 0, True), (3, 1, False), (0, 0, False)])
def test_keys_tell_only_where_there_are_some_and_none_is_at_home(keys: int, here: int, tells: bool) -> None:
    """A batch without keys may be anywhere."""
    content = cast("BatchContent", SimpleNamespace(signs=RecordSigns(keys, here, -1, 0, 3)))
    assert has_keys_of_elsewhere(Evidence(content, False, TopicProfile(4, 30, 27), ())) is tells
    assert not has_keys_of_elsewhere(Evidence(content, False, TopicProfile(4, 30, 26), ()))
    assert not has_keys_of_elsewhere(Evidence(content, False, TopicProfile(4, 29, 29), ()))
