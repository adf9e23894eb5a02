"""Fetch sessions: the changes for a leader, and their repetition."""

from __future__ import annotations

from klog.commands.follow.fetch_session import FetchPosition, FetchSession, FollowedPlace
from klog.formats.error_codes import ErrorCode

ONE, TWO, THREE = (FollowedPlace("orders", "id", number) for number in range(3))


def at(offset: int) -> FetchPosition:
    return FetchPosition(0, offset, 0)


def begun(*places: FollowedPlace) -> FetchSession:
    """Return a session that a leader has given: number 7."""
    session = FetchSession()
    for place in places:
        session.follow(place, at(0))
    request = session.request()
    assert (request.session_id, request.epoch) == (0, 0)
    assert [place for place, _ in request.positions] == list(places)
    session.answered(7, is_empty=False)
    return session


def test_a_session_is_told_only_what_changed() -> None:
    """An answer does not mention a thousand partitions without news."""
    session = begun(ONE, TWO, THREE)
    session.follow(TWO, at(5))
    session.follow(ONE, at(0))
    assert session.request() == (7, 1, [(TWO, at(5))], [])
    session.answered(7, is_empty=True)
    assert session.request() == (7, 2, [], [])


def test_a_session_is_told_what_to_forget() -> None:
    """A topic made anew is another place, so that the old one is forgotten by its old id."""
    session = begun(ONE, TWO)
    anew = ONE._replace(topic_id="another")
    session.forget(ONE)
    session.follow(anew, at(0))
    assert session.request() == (7, 1, [(anew, at(0))], [ONE])
    session.answered(7, is_empty=True)
    session.forget(TWO)
    session.follow(TWO, at(0))
    assert session.request() == (7, 2, [(TWO, at(0))], [])


def test_a_leader_without_sessions_gets_full_requests() -> None:
    """A broker whose cache is full answers with session 0; so does an endpoint that has none."""
    session = begun(ONE, TWO)
    session.request()
    session.answered(0, is_empty=False)
    for _ in range(3):
        request = session.request()
        assert (request.session_id, request.epoch, len(request.positions)) == (0, 0, 2)
        session.answered(0, is_empty=False)


def test_full_requests_let_partitions_take_turns() -> None:
    """The first one has the whole answer to itself if it is large enough: those that received records are moved to the
    end."""
    session = FetchSession()
    for place in (ONE, TWO, THREE):
        session.follow(place, at(0))
    orders = []
    for _ in range(3):
        request = session.request()
        first = request.positions[0][0]
        orders.append([place.number for place, _ in request.positions])
        session.follow(first, at(len(orders)))
        session.answered(0, is_empty=False)
        session.let_others_go_first([first])
    assert orders == [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


def test_a_lost_session_begins_anew() -> None:
    """The broker restarted, or threw it out for others: everything is sent again."""
    for error, told in ((ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)):
        session = begun(ONE, TWO)
        session.follow(ONE, at(9))
        session.request()
        session.answered(0, is_empty=True, error=error)
        assert session.request() == (told, 0, [(ONE, at(9)), (TWO, at(0))], [])


def test_a_throttled_answer_to_a_full_request_is_no_session() -> None:
    """It is empty although partitions were requested: the broker requires a new session, and has none of them."""
    session = FetchSession()
    session.follow(ONE, at(0))
    session.request()
    session.answered(7, is_empty=True)
    assert session.request() == (0, 0, [(ONE, at(0))], [])


def test_epochs_of_a_session_begin_again_after_the_last() -> None:
    """Zero would ask for a new session."""
    session = begun(ONE)
    session._epoch = 2**31 - 1
    session.answered(7, is_empty=True)
    assert session.request().epoch == 1
