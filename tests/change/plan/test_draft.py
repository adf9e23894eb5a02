"""Drafts: what becomes of files is found out and staged, and nothing in the log dir changes meanwhile."""

from __future__ import annotations

import errno
import hashlib
import os
import time
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import crc32c
import pytest
from klog.base.errors import UnreadableError
from klog.change.plan.draft import Draft, backup_places, make_plan, plan_id, staging_of
from klog.change.plan.model import PUT, REMOVE, SHA256_BELOW, TRUNCATE, StaleError, file_state, states_around
from klog.change.plan.staging import Staging
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.locks import Locks

from tests.support.power import only_root, tree

LOG = "orders-3/00000000000000000000.log"
INDEX = "orders-3/00000000000000000000.index"
NOW = 1_795_239_019_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    (path / "orders-3").mkdir(parents=True)
    (path / LOG).write_bytes(b"a log of 25 bytes, no less")
    (path / LOG).chmod(0o604)
    os.utime(path / LOG, ns=(5, 7_000_000_001))
    return path


@pytest.fixture
def draft(data: Path, tmp_path: Path) -> Draft:
    return Draft(str(data), 0, Staging(str(tmp_path / "staged"), Disk()))


def staged(draft: Draft) -> dict[str, bytes]:
    assert draft.staging.directory is not None
    folder = Path(draft.staging.directory)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@only_root
def test_a_new_file_gets_mode_owner_and_time_of_the_one_it_is_like(draft: Draft, data: Path) -> None:
    """Else the broker, which runs as somebody, could not read it; and retention goes by the time."""
    os.chown(data / LOG, 1234, 4321)
    assert draft.put(INDEX, [b"entries", memoryview(b" more")], like=LOG)
    (action,) = draft.actions
    assert (action.do, action.file, action.before, action.source) == (PUT, INDEX, None, INDEX)
    assert action.after is not None
    assert action.after[2:] == (0o604, 1234, 4321, 7_000_000_001)
    assert action.after.content == (12, "sha256:" + hashlib.sha256(b"entries more").hexdigest())
    assert staged(draft) == {INDEX: b"entries more"}


def test_a_new_file_may_be_like_another_new_one(draft: Draft) -> None:
    """A segment that is split has logs that are not there yet, and their indexes."""
    first = "orders-3/00000000000000000007.log"
    draft.put(first, [b"half"], like=LOG, modified_ns=77)
    draft.put(first.replace(".log", ".index"), [b"entries"], like=first)
    log, index = (action.after for action in draft.actions)
    assert log is not None
    assert index is not None
    assert index[2:] == log[2:] == (0o604, os.getuid(), os.getgid(), 77)


def test_a_replaced_file_keeps_mode_owner_and_time_whatever_it_is_said_to_be_like(draft: Draft, data: Path) -> None:
    (data / INDEX).write_bytes(b"old")
    (data / INDEX).chmod(0o600)
    os.utime(data / INDEX, ns=(5, 99))
    draft.put(INDEX, [b"new"], like=LOG)
    draft.put(LOG, [b"new"], modified_ns=3)
    index, log = (action.after for action in draft.actions)
    assert index is not None
    assert log is not None
    assert (index.mode, index.modified_ns) == (0o600, 99)
    assert (log.mode, log.modified_ns) == (0o604, 3)


@only_root
def test_a_file_like_nothing_is_the_directory_s_owner_s_and_of_now(draft: Draft, data: Path) -> None:
    os.chown(data / "orders-3", 1234, 4321)
    draft.put("orders-3/leader-epoch-checkpoint", [b"0\n0\n"])
    after = draft.actions[0].after
    assert after is not None
    assert (after.mode, after.uid, after.gid) == (0o644, 1234, 4321)
    assert abs(after.modified_ns - time.time_ns()) < 10**10


def test_content_that_is_there_already_is_no_action(draft: Draft, data: Path) -> None:
    """A second run of a repair must find nothing to do."""
    assert not draft.put(LOG, [(data / LOG).read_bytes()])
    assert not draft.truncate(LOG, 26)
    assert not draft.remove(INDEX)
    assert draft.actions == []
    assert staged(draft) == {}


def test_a_plan_that_is_only_shown_writes_nothing(data: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    draft = Draft(str(data), 0, Staging(None, Disk()))
    draft.put(INDEX, [b"entries"], like=LOG)
    draft.truncate(LOG, 5)
    number = plan_id("recover", NOW)
    plan = make_plan(number, "klog recover", [str(data)], backup_places(number, [str(data)]), [draft], NOW)
    assert [action.do for action in plan.actions] == [PUT, TRUNCATE]
    assert plan.staging == ("",)
    assert tree(tmp_path) == before


def test_drafting_changes_nothing_in_the_log_dir(draft: Draft, data: Path) -> None:
    before = tree(data)
    draft.put(INDEX, [b"entries"], like=LOG)
    draft.truncate(LOG, 5)
    draft.remove(LOG)
    draft.rely_on(LOG)
    assert tree(data) == before


def test_several_changes_of_a_file_are_a_chain(draft: Draft, data: Path) -> None:
    """An index is emptied before its log changes, and filled afterwards."""
    (data / INDEX).write_bytes(b"old entries")
    draft.truncate(INDEX, 0)
    draft.truncate(LOG, 10)
    draft.put(INDEX, [b"new"])
    draft.remove(INDEX)
    draft.put(INDEX, [b"newer"])
    chain = [action for action in draft.actions if action.file == INDEX]
    assert [action.do for action in chain] == [TRUNCATE, PUT, REMOVE, PUT]
    assert all(one.after == other.before for one, other in pairwise(chain))
    assert sorted(staged(draft).values()) == [b"new", b"newer"]
    assert len({action.source for action in chain if action.do == PUT}) == 2


def test_a_chain_that_comes_back_to_where_it_was_is_shortened(draft: Draft, data: Path) -> None:
    """Each state may be there once: a plan finds out by them how far it has come."""
    (data / INDEX).write_bytes(b"entries")
    draft.truncate(INDEX, 0)
    draft.truncate(LOG, 10)
    draft.put(INDEX, [b"other"])
    draft.put(INDEX, [b"entries"])
    assert [action.file for action in draft.actions] == [LOG]
    assert staged(draft) == {}
    draft.put(INDEX, [b"yet another"])
    last = draft.actions.pop()
    assert last.before == file_state(str(data / INDEX))
    draft.put("orders-3/x.txnindex", [b"x"], like=LOG)
    draft.remove("orders-3/x.txnindex")
    assert [action.file for action in draft.actions] == [LOG]


SWAP, CLEANED = f"{LOG}.swap", f"{LOG}.cleaned"


def test_what_was_prepared_is_said_when_it_is_put(draft: Draft) -> None:
    """The other changes are known when a log has been written as a whole."""
    new = draft.prepare(LOG, [b"short"], modified_ns=3)
    assert draft.actions == []
    assert draft.state(LOG) != new.after
    assert draft.put_prepared(new)
    (action,) = draft.actions
    assert (action.do, action.file, action.after, action.source) == (PUT, LOG, new.after, LOG)
    assert new.after.modified_ns == 3


def test_what_was_prepared_and_is_there_already_is_no_action(draft: Draft, data: Path) -> None:
    assert not draft.put_prepared(draft.prepare(LOG, [(data / LOG).read_bytes()]))
    assert draft.actions == []
    assert staged(draft) == {}


def test_a_file_may_come_and_go(draft: Draft) -> None:
    """Other files that are put and removed are left out; these must have both actions."""
    new = draft.prepare(LOG, [b"short"])
    draft.put_transient(CLEANED)
    draft.put_transient(SWAP, new)
    draft.remove_transient(CLEANED)
    draft.put_prepared(new)
    draft.remove_transient(SWAP)
    said = [(action.do, action.file, action.before and action.before.size) for action in draft.actions]
    assert said == [(PUT, CLEANED, None), (PUT, SWAP, None), (REMOVE, CLEANED, 0), (PUT, LOG, 26), (REMOVE, SWAP, 5)]
    assert draft.actions[1].after == draft.actions[3].after
    assert draft.state(SWAP) is None


def test_a_file_that_comes_and_goes_is_a_second_name(draft: Draft) -> None:
    """A segment has a gigabyte: it is neither written nor read twice."""
    draft.put_transient(SWAP, draft.prepare(LOG, [b"short"]))
    folder = Path(str(draft.staging.directory))
    assert (folder / SWAP).stat().st_ino == (folder / LOG).stat().st_ino


def test_a_file_that_comes_and_goes_is_a_copy_where_there_are_no_links(data: Path, tmp_path: Path) -> None:
    class NoLinks(Disk):
        def link(self, source: str, target: str) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), source)

    draft = Draft(str(data), 0, Staging(str(tmp_path / "staged"), NoLinks()))
    draft.put_transient(SWAP, draft.prepare(LOG, [b"short"]))
    assert staged(draft) == {LOG: b"short", SWAP: b"short"}


def test_a_file_that_comes_and_goes_must_not_be_there(draft: Draft, data: Path) -> None:
    """A broker has left it there, and its start will do something with it."""
    (data / SWAP).touch()
    with pytest.raises(StaleError, match=r"log\.swap: exists, left by an unfinished operation.*klog recover"):
        draft.put_transient(SWAP, draft.prepare(LOG, [b"short"]))


def test_a_truncation_knows_the_digest_of_what_is_left(draft: Draft, data: Path) -> None:
    draft.truncate(LOG, 5)
    action = draft.actions[0]
    assert action.before is not None
    assert action.after is not None
    assert action.before.digest == "sha256:" + hashlib.sha256((data / LOG).read_bytes()).hexdigest()
    assert action.after.content == (5, "sha256:" + hashlib.sha256(b"a log").hexdigest())
    assert action.after[2:] == action.before[2:], "mode, owner and time stay"


@pytest.mark.parametrize("size", [0, 1, SHA256_BELOW - 1, SHA256_BELOW, SHA256_BELOW + 1, SHA256_BELOW + (1 << 20)])
def test_digests_of_large_files_are_crcs(tmp_path: Path, size: int) -> None:
    content = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    (tmp_path / "file").write_bytes(content + b"and the rest")
    crc, sha = f"crc32c:{crc32c.crc32c(content):08x}", f"sha256:{hashlib.sha256(content).hexdigest()}"
    whole, cut = states_around(str(tmp_path / "file"), size)
    assert cut.content == (size, crc if size >= SHA256_BELOW else sha)
    assert whole.size == size + 12
    assert file_state(str(tmp_path / "file")) == whole
    (tmp_path / "file").write_bytes(content)
    state = file_state(str(tmp_path / "file"))
    assert state is not None
    assert state.content == cut.content


@pytest.mark.parametrize("piece", [1, 1000, 1 << 20, 3 << 20])
def test_content_is_streamed(draft: Draft, piece: int) -> None:
    """Logs have a gigabyte: they are never in memory as a whole."""
    size = min(piece * 5000, 40 << 20)
    view = memoryview(bytearray(b"7" * piece))  # the same buffer again and again, as a planner would

    def content() -> Iterator[memoryview]:
        for _ in range(size // piece):
            yield view

    tracemalloc.start()
    draft.put(LOG, content())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
    assert staged(draft) == {LOG: b"7" * (size // piece * piece)}
    after = draft.actions[0].after
    assert after is not None
    kept = file_state(os.path.join(str(draft.staging.directory), LOG))
    assert kept is not None
    assert kept.content == after.content


def test_content_that_fails_half_way_leaves_nothing(draft: Draft) -> None:
    def content() -> Iterator[bytes]:
        yield b"half" * (1 << 20)
        raise ZeroDivisionError

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ZeroDivisionError):
        draft.put(LOG, content())
    assert staged(draft) == {}
    assert draft.actions == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_was_staged_goes_when_no_plan_comes_of_it(data: Path, tmp_path: Path) -> None:
    before = tree(tmp_path, directory_times=False)
    (place,) = backup_places("x", [str(data)])
    draft = Draft(str(data), 0, Staging(os.path.join(place, "staged"), Disk()))
    draft.put(INDEX, [b"entries"], like=LOG)
    draft.staging.discard()
    assert tree(tmp_path, directory_times=False) == before


@pytest.mark.parametrize("call", ["put", "remove", "truncate"])
def test_links_and_directories_in_the_way_are_stale(draft: Draft, data: Path, call: str, tmp_path: Path) -> None:
    """The target of a link belongs to somebody else."""
    (tmp_path / "elsewhere").write_bytes(b"content")
    (data / INDEX).symlink_to(tmp_path / "elsewhere")
    (data / "orders-3" / "leader-epoch-checkpoint").mkdir()
    for file in (INDEX, "orders-3/leader-epoch-checkpoint"):
        with pytest.raises(StaleError, match="not a regular file"):
            draft.put(file, [b""]) if call == "put" else draft.truncate(
                file, 0
            ) if call == "truncate" else draft.remove(file)


def test_a_guard_is_size_and_time(draft: Draft) -> None:
    draft.rely_on(LOG)
    draft.rely_on(LOG)
    assert [guard[:3] for guard in draft.guards] == [(LOG, 26, 7_000_000_001)]
    with pytest.raises(UnreadableError, match="no longer there"):
        draft.rely_on(INDEX)


def test_files_that_change_need_no_guard(draft: Draft, data: Path) -> None:
    draft.rely_on(LOG)
    draft.truncate(LOG, 3)
    plan = make_plan("x", "klog", [str(data)], ["/b"], [draft], NOW)
    assert plan.guards == ()


def test_a_plan_remembers_directories_and_missing_locks(draft: Draft, data: Path) -> None:
    draft.truncate(LOG, 3)
    draft.put("cleaner-offset-checkpoint", [b"0\n0\n"])
    os.utime(data / "orders-3", ns=(1, 11))
    os.utime(data, ns=(1, 12))
    plan = make_plan("x", "klog", [str(data)], ["/b"], [draft], NOW)
    assert plan.directory_times == {(0, "orders-3"): 11, (0, ""): 12}
    assert plan.no_lock == (0,)
    with Locks([str(data)], Disk()) as locks:
        held = make_plan("x", "klog", [str(data)], ["/b"], [draft], NOW, locks=locks)
        assert (held.no_lock, held.directory_times) == (plan.no_lock, plan.directory_times)
    (data / ".lock").touch()
    assert make_plan("x", "klog", [str(data)], ["/b"], [draft], NOW).no_lock == ()


def test_ids_say_when_and_what(data: Path) -> None:
    assert plan_id("recover", 1_795_237_819_000).startswith("20261121-051019-recover-")
    assert len({plan_id("recover", NOW) for _ in range(50)}) > 40


def test_backups_are_beside_the_log_dir_and_no_two_log_dirs_share_one(tmp_path: Path) -> None:
    """A directory that brokers do not accept, in a log dir, keeps them from starting."""
    for name in ("one", "two"):
        (tmp_path / "disk" / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "one")
    places = backup_places("x", [str(tmp_path / "link"), str(tmp_path / "disk" / "two")])
    assert places == (str(tmp_path / "disk/klog-backup/x"), str(tmp_path / "disk/klog-backup/x-1"))
    assert backup_places("x", ["/data"], str(tmp_path / "b")) == (str(tmp_path / "b"),)
    assert backup_places("x", ["/data"], str(tmp_path / "disk")) == (str(tmp_path / "disk" / "x"),)
    assert backup_places("x", ["/d", "/e"], str(tmp_path / "b")) == (str(tmp_path / "b/0"), str(tmp_path / "b/1"))
    assert staging_of("/p.staged", ["/d", "/e"]) == ("/p.staged/0", "/p.staged/1")
