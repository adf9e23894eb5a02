"""The reaction of a copy to a leader's answer, without a leader and without a copy."""

from __future__ import annotations

import pytest
from klog.base.errors import ExitCode
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.commands.follow.reactions import (
    Cut,
    Decision,
    EpochEnd,
    FetchAnswer,
    Leave,
    Look,
    Skip,
    Take,
    Wait,
    judge,
    locate,
)
from klog.formats.checkpoint import EpochEntry
from klog.formats.error_codes import ErrorCode


def epochs(**starts: int) -> list[EpochEntry]:
    """Return epochs by their numbers: `epochs(e0=0, e2=12)`."""
    return [EpochEntry(int(name[1:]), start) for name, start in starts.items()]


def answered(error: int = 0, diverging: EpochEnd | None = None) -> FetchAnswer:
    return FetchAnswer(error, 35, 0, diverging, memoryview(b""))


class Leader:
    """A leader with these epochs, whose log starts and ends there; it counts the requests."""

    def __init__(self, history: list[EpochEntry], start: int, end: int, high_watermark: int | None = None) -> None:
        self.epochs, self.start, self.end = LeaderEpochCache(history), start, end
        self.high_watermark = end if high_watermark is None else high_watermark
        self.asked: list[int] = []

    def epoch_end(self, epoch: int) -> EpochEnd:
        self.asked.append(epoch)
        return self.epochs.end_offset_for(epoch, self.end)

    def bounds(self) -> tuple[int, int]:
        return self.start, self.high_watermark

    def locates(self, copy: list[EpochEntry], log_end: int) -> Decision:
        return locate(copy, log_end, self.epoch_end, self.bounds)


def test_records_and_marks_are_taken() -> None:
    """No error, no divergence: any other content is the next state of the copy."""
    assert judge(answered(), epochs(e0=0), 35) == Take()


@pytest.mark.parametrize(
    ("diverging", "to"),
    [((0, 20), 20), ((1, 15), 12), ((0, 10), 10), ((2, 13), 13)],
    ids=["the copy's epoch ended sooner", "an epoch the copy does not have", "an old epoch", "the last but one"],
)
def test_histories_part_where_the_shorter_one_ends(diverging: EpochEnd, to: int) -> None:
    """Neither side's word alone: the end of the leader's epoch, or where the copy left it, whichever is less."""
    copy = epochs(e0=0) if diverging == (0, 20) else epochs(e0=0, e2=12, e3=14)
    assert judge(answered(diverging=diverging), copy, 35) == Cut(to, *diverging)


def test_a_divergence_may_need_several_rounds() -> None:
    """Leader {0:0, 1:10, 4:15} to 20, copy {0:0, 2:12, 3:14} to 16: they share 0 to 9."""
    leader, copy, log_end, rounds = (
        LeaderEpochCache(epochs(e0=0, e1=10, e4=15)),
        epochs(e0=0, e2=12, e3=14),
        16,
        list[int](),
    )
    while (told := leader.end_offset_for(copy[-1].epoch, 20)) != (copy[-1].epoch, 20) and told[1] < log_end:
        found = judge(answered(diverging=told), copy, log_end)
        assert isinstance(found, Cut)
        log_end = found.to
        copy = [entry for entry in copy if entry.start_offset < log_end]
        rounds.append(log_end)
    assert rounds == [12, 10]


def test_a_divergence_that_cuts_nothing_is_waited_out() -> None:
    """Else the same question would get the same answer for ever."""
    assert isinstance(judge(answered(diverging=(0, 40)), epochs(e0=0), 35), Wait)


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 76, 78, 100, 103, 109, -1, 4711])
def test_any_other_error_may_pass(code: int) -> None:
    """Leaders move and brokers restart: the partition has to be retried, whatever the error is called."""
    assert isinstance(judge(answered(code), epochs(e0=0), 35), Wait)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_a_missing_permission_does_not_pass(code: ErrorCode) -> None:
    """Nothing is gained by asking again; it is named."""
    found = judge(answered(code), [], 0)
    assert isinstance(found, Leave)
    assert found.exit_code == ExitCode.OPERATIONAL_ERROR
    assert code.name in found.why


def test_an_offset_out_of_range_is_looked_into() -> None:
    """The answer has neither log start nor high watermark: it decides nothing yet."""
    assert judge(answered(ErrorCode.OFFSET_OUT_OF_RANGE), epochs(e0=0), 35) == Look()


def test_what_was_deleted_before_it_was_copied_is_skipped() -> None:
    """The copy ends at 200, the leader's log starts at 260, and the leader has the end of the copy's epoch."""
    leader = Leader(epochs(e0=260), 260, 300)
    assert leader.locates(epochs(e0=0), 200) == Skip(260)


def test_a_copy_with_unknown_epochs_is_cut_before_its_range_is_believed() -> None:
    """A leader without any epoch as new as the copy's answers "out of range" too, though it has the offset."""
    leader = Leader(epochs(e0=0, e1=50), 0, 100)
    assert leader.locates(epochs(e0=0, e1=50, e7=60), 80) == Cut(60, 1, 100)
    assert leader.asked == [7, 1]


def test_a_copy_of_which_the_leader_knows_no_epoch_goes_whole() -> None:
    """Nothing of it is in the leader's history; what lies before the first epoch stays."""
    leader = Leader(epochs(e0=0, e1=50), 0, 100)
    assert leader.locates(epochs(e5=10, e7=60), 80) == Cut(10, -1, -1)
    assert leader.asked == [7, 5]


def test_a_shorter_leader_cuts_where_its_epoch_ends() -> None:
    """Out of range, since its log is shorter, and it has the same epoch."""
    assert Leader(epochs(e0=0), 0, 20).locates(epochs(e0=0), 35) == Cut(20, 0, 20)


def test_without_epochs_the_leaders_end_is_believed() -> None:
    """Batches of the old formats have none."""
    assert Leader([], 0, 20).locates([], 35) == Cut(20, -1, 20)
    assert Leader([], 40, 60).locates([], 35) == Skip(40)


def test_a_high_watermark_that_lags_cuts_nothing() -> None:
    """A new leader learns the high watermark late; its log has the copy's records."""
    leader = Leader(epochs(e0=0, e1=50), 0, 100, high_watermark=60)
    assert isinstance(leader.locates(epochs(e0=0, e1=50), 100), Wait)
