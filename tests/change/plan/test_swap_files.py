"""Files that come and go: how far they have come is known at any moment, and no plan makes use of them otherwise."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import klog.change.plan.backup
import pytest
from klog.base.errors import PlanError
from klog.change.plan.draft import Draft, make_plan
from klog.change.plan.executor import ApplyError, apply
from klog.change.plan.file_history import locate_histories
from klog.change.plan.model import PUT, REMOVE, STAGED, TRUNCATE, Action, FileState, Plan, StaleError
from klog.change.plan.plan_document import plan_pieces, read_plan
from klog.change.plan.plan_rules import check_plan
from klog.change.plan.replace_segments import replace_segments
from klog.change.plan.staging import Staging
from klog.change.plan.undo import plan_undo, stage_undo
from klog.formats.names import FileKind

from tests.change.plan.test_replace_segments import memory
from tests.support.merging import MERGES, NOW, Merge, files_of, only, states, write
from tests.support.power import HastyDisk, KilledError, SteppedDisk, less_pointers, same, take_back, tree

__all__ = ["memory"]

MERGE = MERGES["three of six"]
BASE = f"{MERGE.directory}/{45:020}"
SWAP, CLEANED, LOG = f"{BASE}.log.swap", f"{BASE}.log.cleaned", f"{BASE}.log"

SLACK = 4096


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return only(MERGE.directory, tmp_path / "data")


class StoppingDisk(SteppedDisk):
    """Dies before the second old log is removed: the number of calls before that differs from run to run."""

    def step(self, *words: str) -> None:
        super().step(*words)
        if words[0] == "unlink" and words[1].endswith(f"{100:020}.log"):
            raise KilledError


def stop_between_removals(plan: Plan, data: Path) -> None:
    """Apply *plan* until the first of the old logs is removed."""
    with pytest.raises(KilledError):
        apply(plan, StoppingDisk(data.parent))


# how far it has come


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_what_is_done_and_what_is_not_is_known_at_any_moment(merge: Merge, quick: bool, memory: Path) -> None:
    """A missing file is a future one, or a deleted one: a wrong guess repeats an action."""
    data, here = only(merge.directory, memory / "data"), memory / "here"
    plan = merge.plan(data, HastyDisk())
    forwards = list(states(plan, files_of(data)))
    apply(plan, HastyDisk())
    back = plan_undo(plan, NOW)
    stage_undo(plan, back, HastyDisk())
    for one, ways in ((plan, forwards), (back, list(states(back, files_of(data))))):
        for between in ways:
            shutil.rmtree(here, ignore_errors=True)
            write(between.files, here)
            found = locate_histories(one._replace(log_dirs=(str(here),)), quick=quick)
            to_do = {place for chain in found for place in chain.to_do}
            assert to_do == set(range(len(one.actions))) - between.done


def test_what_somebody_has_removed_in_between_is_missed(data: Path) -> None:
    """Without it the next removal would leave neither the old log nor the new one."""
    before = files_of(data)
    plan = MERGE.plan(data, HastyDisk())
    stop_between_removals(plan, data)
    (data / SWAP).unlink()
    half = files_of(data)
    assert f"{MERGE.directory}/{80:020}.log" not in half
    with pytest.raises(StaleError, match=r"log\.cleaned: gone, although the plan needs it for"):
        apply(plan, HastyDisk())
    assert files_of(data) == half
    take_back(plan, HastyDisk())
    assert files_of(data) == before


@pytest.mark.parametrize("left", [f"{0:020}.log.cleaned", f"{0:020}.index.swap", f"{210:020}.log.swap"])
@pytest.mark.parametrize("moment", ["planned", "half done", "to be taken back"])
def test_what_a_broker_has_left_keeps_it_from_being_done(data: Path, left: str, moment: str) -> None:
    """A start would drop our files with its own, or take both for one operation and all between them away."""
    plan = MERGE.plan(data, HastyDisk())
    if moment == "half done":
        stop_between_removals(plan, data)
    elif moment == "to be taken back":
        apply(plan, HastyDisk())
        done, plan = plan, plan_undo(plan, NOW)
        stage_undo(done, plan, HastyDisk())
    times = data.joinpath(MERGE.directory).stat()
    (data / MERGE.directory / left).touch()
    os.utime(data / MERGE.directory, ns=(times.st_atime_ns, times.st_mtime_ns))
    before = files_of(data)
    with pytest.raises(StaleError, match=f"{left}: left by an unfinished operation; 'klog recover' finishes it"):
        apply(plan, HastyDisk())
    assert files_of(data) == before


def same_times(data: Path) -> Plan:
    """Return a plan that merges segments, whose time index is that of the first one."""
    draft = Draft(str(data), 0, Staging(str(data.parent / "klog-backup" / "x" / STAGED), HastyDisk()))
    log = draft.prepare(LOG, [MERGE.log(data)])
    times = (data / f"{BASE}.timeindex").read_bytes()
    replace_segments(
        draft, MERGE.directory, MERGE.bases, log, {FileKind.INDEX: [b"entries!"], FileKind.TIME_INDEX: [times]}
    )
    return make_plan("x", "klog", [str(data)], [str(data.parent / "klog-backup" / "x")], [draft], NOW)


def test_an_index_that_stays_as_it_was_has_one_that_stands_for_it(data: Path) -> None:
    """A start removes all files in the way of the new log, and only then renames the new files."""
    before = tree(data)
    plan = same_times(data)
    assert [action.do for action in plan.actions if action.file.startswith(f"{BASE}.timeindex")] == [PUT, REMOVE]
    apply(plan, HastyDisk())
    after = tree(data)
    back = take_back(plan, HastyDisk())
    assert tree(data) == before
    take_back(back, HastyDisk())
    assert tree(data) == after


def test_what_nothing_has_any_more_is_not_taken_back(data: Path) -> None:
    """A broker has used the index since, and a start on the way would have to have it as it was."""
    plan = same_times(data)
    apply(plan, HastyDisk())
    (data / f"{BASE}.timeindex").write_bytes(b"x")
    before = files_of(data)
    with pytest.raises(StaleError, match=r"timeindex\.swap: its former content no longer exists"):
        plan_undo(plan, NOW)
    assert files_of(data) == before


# the cost


@pytest.mark.parametrize("is_known", [True, False])
def test_the_new_log_is_never_copied_and_read_once_at_most(
    data: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """A segment has a gigabyte, and disks are compacted because they are full.  Who has written it need not read it."""
    plan = MERGE.plan(data, HastyDisk())
    if not is_known:
        plan = plan._replace(known_here={})  # in the order of the file
    read: list[str] = []
    original = klog.change.plan.backup.file_state
    monkeypatch.setattr(
        klog.change.plan.backup, "file_state", lambda path, **how: read.append(path) or original(path, **how)
    )
    disk = SteppedDisk(data.parent)
    apply(plan, disk)
    assert sum(path.endswith((".log", ".log.swap")) for path in read) == (0 if is_known else 1)
    assert not [call for call in disk.calls if call.startswith("copy")]


def test_a_new_file_that_somebody_else_has_changed_is_not_put_in_place(data: Path) -> None:
    """Its size is the same: the time shows that the digest of the written bytes no longer counts."""
    plan = MERGE.plan(data, HastyDisk())
    before = tree(data)
    action = next(one for one in plan.actions if one.source is not None and one.after is not None and one.after.size)
    waiting = Path(plan.staged(action.log_dir), action.source or "")
    content = bytearray(waiting.read_bytes())
    content[-1] ^= 0xFF
    waiting.write_bytes(content)
    os.utime(waiting, ns=(1, 1))
    with pytest.raises(StaleError, match="not in the state of the plan"):
        apply(plan, HastyDisk())
    assert same(data, before)


class NoLinks(HastyDisk):
    def link(self, source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source)


def test_without_links_there_are_copies(data: Path) -> None:
    before = tree(data)
    plan = MERGE.plan(data, NoLinks())
    expected = list(states(plan, files_of(data)))[-1].files
    apply(plan, NoLinks())
    assert files_of(data) == expected
    take_back(plan, NoLinks())
    assert tree(data) == before


def room(plan: Plan, place: Path) -> int:
    """Return the bytes that are needed on the file system of *place*, without the allowance for each file."""

    class FullDisk(HastyDisk):
        def free_bytes(self, path: str) -> int:
            return -1 if os.stat(path).st_dev == place.stat().st_dev else 1 << 40

    with pytest.raises(ApplyError) as caught:
        apply(plan, FullDisk())
    return int(str(caught.value).split(": ")[1].split()[0]) % SLACK


def test_a_backup_on_another_file_system_takes_one_copy_each_way(data: Path, elsewhere: Path) -> None:
    """New files are staged in the backup; a file that is put twice is moved in once."""
    before = tree(data)
    plan = MERGE.plan(data, HastyDisk(), str(elsewhere / "backup"))
    new = len(MERGE.log(data)) + sum(map(len, MERGE.indexes(data).values()))
    assert room(plan, data) == new % SLACK
    disk = SteppedDisk(data.parent)
    plan = MERGE.plan(data, HastyDisk(), str(elsewhere / "backup"))
    apply(plan, disk)
    copies = [call.split()[-1] for call in disk.calls if call.startswith("copy")]
    assert [path for path in copies if path.startswith("data/")] == [
        f"data/{file}.klog.tmp" for file in (CLEANED, SWAP, f"{BASE}.index.swap", f"{BASE}.timeindex.swap")
    ]
    take_back(plan, HastyDisk())
    assert less_pointers(tree(data)) == before


def test_what_waits_on_another_file_system_is_brought_once(data: Path, elsewhere: Path) -> None:
    """Beside a plan's file, that is."""
    draft = Draft(str(data), 0, Staging(str(elsewhere / "plan.staged"), HastyDisk()))
    MERGE.say(draft)
    plan = make_plan("x", "klog compact", [str(data)], [str(data.parent / "klog-backup" / "x")], [draft], NOW)
    new = len(MERGE.log(data)) + sum(map(len, MERGE.indexes(data).values()))
    assert room(plan, data) == new % SLACK
    disk = SteppedDisk(data.parent)
    apply(plan, disk)
    assert sum(call.startswith("copy") for call in disk.calls) == 4


# forbidden parts of a plan


def passing(plan: Plan, file: str) -> tuple[int, int]:
    """Return the places of the two actions of a file that comes and goes."""
    came, went = (place for place, action in enumerate(plan.actions) if action.file == file)
    return came, went


def place_of(plan: Plan, file: str) -> int:
    (place,) = (place for place, action in enumerate(plan.actions) if action.file == file)
    return place


def moved(plan: Plan, place: int, to: int) -> Plan:
    """Return the plan with one action in another place."""
    actions = list(plan.actions)
    actions.insert(to, actions.pop(place))
    return plan._replace(actions=tuple(actions))


def renamed(plan: Plan, file: str, name: str) -> Plan:
    """Return the plan with another name for a file."""
    return plan._replace(actions=tuple(one._replace(file=name) if one.file == file else one for one in plan.actions))


def filled(plan: Plan, file: str, content: FileState) -> Plan:
    """Return the plan with other content for a file that comes and goes."""
    came, went = passing(plan, file)
    actions = list(plan.actions)
    actions[came] = actions[came]._replace(after=content)
    actions[went] = actions[went]._replace(before=content)
    return plan._replace(actions=tuple(actions))


def without(plan: Plan, file: str) -> Plan:
    return plan._replace(actions=tuple(action for action in plan.actions if action.file != file))


def twice(plan: Plan) -> Plan:
    """Return the plan with a second transient segment while the first exists."""
    other = [
        action._replace(
            file=action.file.replace(f"{45:020}", f"{210:020}"), source=action.source and f"{action.source}x"
        )
        for action in plan.actions
        if action.file in (SWAP, LOG)
    ]
    came = passing(plan, SWAP)[1]
    return plan._replace(actions=(*plan.actions[:came], *other, *plan.actions[came:]))


def again(plan: Plan) -> Plan:
    """Return the plan with a file that is created once more after its deletion."""
    came, went = passing(plan, SWAP)
    more = [plan.actions[came]._replace(source="again"), plan.actions[went]]
    return plan._replace(actions=(*plan.actions, *more))


def removed_log(plan: Plan) -> Plan:
    """Return the plan with the log removed while its second name exists."""
    place = place_of(plan, LOG)
    log = plan.actions[place]
    assert log.before is not None
    actions = list(plan.actions)
    actions[place] = Action(REMOVE, LOG, log.before, None)
    return filled(plan._replace(actions=tuple(actions)), SWAP, log.before)


def emptied_log(plan: Plan) -> Plan:
    """Return the plan with the log emptied before its second name exists."""
    place = place_of(plan, LOG)
    log = plan.actions[place]
    assert log.before is not None
    empty = log.before._replace(size=0, digest=f"sha256:{'0' * 64}")
    actions = list(plan.actions)
    actions[place] = log._replace(before=empty)
    return plan._replace(actions=(Action(TRUNCATE, LOG, log.before, empty), *actions))


OTHER = FileState(5, f"sha256:{'a' * 64}", 0o644, 0, 0, 7)
HOSTILE: dict[str, Callable[[Plan], Plan]] = {
    "goes before its log changes": lambda plan: moved(plan, passing(plan, SWAP)[1], passing(plan, SWAP)[0] + 1),
    "comes after its log changes": lambda plan: moved(plan, passing(plan, SWAP)[0], passing(plan, SWAP)[1] - 1),
    "has other content than its log": lambda plan: filled(plan, SWAP, OTHER),
    "is empty and its log is not": lambda plan: filled(plan, SWAP, OTHER._replace(size=0)),
    "has other content than its index": lambda plan: filled(plan, f"{BASE}.index.swap", OTHER),
    "stands for a log that does not change": lambda plan: without(plan, LOG),
    "stands for a log that goes": removed_log,
    "stands for a log that changes twice": emptied_log,
    "goes before its index changes": lambda plan: moved(plan, place_of(plan, f"{BASE}.index"), len(plan.actions) - 1),
    "belongs to another log": lambda plan: renamed(plan, SWAP, SWAP.replace("45", "46")),
    "is a log": lambda plan: renamed(plan, SWAP, LOG.replace("45", "46")),
    "is deleted": lambda plan: renamed(plan, SWAP, f"{LOG}.deleted"),
    "is a snapshot": lambda plan: renamed(plan, SWAP, f"{BASE}.snapshot.swap"),
    "is of the log dir": lambda plan: renamed(plan, SWAP, "cleaner-offset-checkpoint"),
    "has a name that no broker writes": lambda plan: renamed(plan, SWAP, f"{MERGE.directory}/45.log.swap"),
    "shields with content": lambda plan: filled(plan, CLEANED, OTHER),
    "shields with an index": lambda plan: renamed(plan, CLEANED, f"{BASE}.index.cleaned"),
    "shields nothing": lambda plan: moved(plan, passing(plan, CLEANED)[1], passing(plan, CLEANED)[0] + 1),
    "shields all the time": lambda plan: moved(plan, passing(plan, CLEANED)[1], passing(plan, SWAP)[1]),
    "stands beside another": twice,
    "comes again": again,
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_what_comes_and_goes_otherwise_is_refused(data: Path, change: Callable[[Plan], Plan]) -> None:
    """The progress of such a plan could not be determined, or a start on the way would take the log for another."""
    plan = MERGE.plan(data, HastyDisk())
    check_plan(plan)
    assert read_plan(b"".join(plan_pieces(plan))).actions == plan.actions
    with pytest.raises(PlanError, match="the plan is refused"):
        check_plan(change(plan))
