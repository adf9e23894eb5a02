"""Plans as files: a written plan is read again, and every oddity is refused as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from klog.base.errors import PlanError
from klog.change.plan.model import APPEND, PUT, REMOVE, TRUNCATE, Action, Amount, CutOut, FileState, Guard, Loss, Plan
from klog.change.plan.plan_document import MAX_BYTES, plan_json, plan_pieces, read_plan

LOG = "orders-3/00000000000000001841.log"
INDEX = "orders-3/00000000000000001841.index"


def state(size: int, digit: str = "a", kind: str = "sha256") -> FileState:
    return FileState(
        size, f"{kind}:{digit * (64 if kind == 'sha256' else 8)}", 0o640, 1001, 1002, 1_795_239_019_123_456_789
    )


def a_plan() -> Plan:
    """A plan with something of everything."""
    return Plan(
        "20261121-051019-recover-7f3a",
        "2026-11-21T05:10:19Z",
        "klog recover data/ --apply",
        ("/data/one", "/data/two"),
        ("/data/klog-backup/x", "/data/klog-backup/x-1"),
        (
            Action(TRUNCATE, LOG, state(9226, "a", "crc32c"), state(8192, "b")),
            Action(PUT, INDEX, None, state(8, "c"), INDEX, 1),
            Action(TRUNCATE, INDEX, state(80, "c"), state(0, "d")),
            Action(PUT, INDEX, state(0, "d"), state(8, "e"), f"{INDEX}~2"),
            Action(REMOVE, "orders-3/00000000000000001900.snapshot", state(5, "f"), None),
            Action(
                PUT, "recovery-point-offset-checkpoint", state(5, "f"), state(7), "recovery-point-offset-checkpoint"
            ),
        ),
        (Guard("orders-3/00000000000000000000.log", 5, 7, 1),),
        (Loss("orders", 3, 1844, 1850, 7, 1034, "torn-tail"), Loss(None, None, None, None, None, 5, "strange")),
        ({"id": "torn-tail", "position": 8192, "file": "orders-3/\udcff.log"},),
        Amount(1003, 8192),
        Amount(1000, 8000),
        ("/plan.staged/0", ""),
        (1,),
        (CutOut(LOG, 8192, 9226, "torn-tail", {"first_offset": 1844}),),
        {(0, "orders-3"): 17, (1, ""): -5},
        {(0, "orders-3"): 16},
        "20261121-051018-compact-0000",
    )


WRITTEN = b"".join(plan_pieces(a_plan()))


def test_a_plan_that_was_written_is_read_again() -> None:
    """The applied plan must be the one that was shown."""
    assert read_plan(WRITTEN) == a_plan()


def test_the_members_are_those_of_the_contract() -> None:
    members = plan_json(a_plan())
    assert members["klog_plan"] == 1
    assert members["backup"] == "/data/klog-backup/x"
    assert members["broker_would_keep"] == {"records": 1000, "bytes": 8000}
    names = ["topic", "partition", "first_offset", "last_offset", "records", "bytes", "reason"]
    assert members["losses"] == [
        dict(zip(names, ["orders", 3, 1844, 1850, 7, 1034, "torn-tail"], strict=True)),
        dict(zip(names, [None, None, None, None, None, 5, "strange"], strict=True)),
    ]
    cut, put, *_, removed, _ = json.loads(WRITTEN)["actions"]
    assert list(cut) == ["do", "file", "size", "before", "after"]
    assert cut["before"]["crc32c"] == "aaaaaaaa"
    assert (cut["size"], cut["after"]["size"], cut["after"]["sha256"]) == (8192, 8192, "b" * 64)
    assert (put["from"], put["log_dir"], "before" in put) == (INDEX, 1, False)
    assert (removed["do"], "after" in removed, "log_dir" in removed) == ("remove", False, False)


def test_a_plan_file_has_a_line_for_each_action() -> None:
    """People look at them, and compare two."""
    lines = WRITTEN.decode().splitlines()
    assert sum('"do":' in line for line in lines) == 6
    assert max(line.count('"do":') for line in lines) == 1


Change = Callable[[dict], object]


def at(*path: object, to: object) -> Change:
    """A change of one member, or item, of a plan's JSON."""

    def change(plan: dict) -> None:
        inside = plan
        for step in path[:-1]:
            inside = inside[step]  # type: ignore[index]
        inside[path[-1]] = to  # type: ignore[index]

    return change


def without(*path: object) -> Change:
    def change(plan: dict) -> None:
        inside = plan
        for step in path[:-1]:
            inside = inside[step]  # type: ignore[index]
        del inside[path[-1]]  # type: ignore[arg-type]

    return change


PATHS = [
    "/etc/passwd",
    "../orders-3/00000000000000001841.log",
    "orders-3/../../00000000000000001841.log",
    "orders-3/..",
    "orders-3/.",
    "orders-3//00000000000000001841.log",
    "orders-3/",
    "/00000000000000001841.log",
    "",
    ".",
    "..",
    "orders-3/a/00000000000000001841.log",
    "orders-3/00000000000000001841.log\0",
    "00000000000000001841.log",
    "orders-3",
    "notapartition/00000000000000001841.log",
    "orders-3/notakafkafile",
    "orders-3/.lock",
    "orders-3/meta.properties",
    "orders-3/.kafka_cleanshutdown",
    ".lock",
    "meta.properties",
    "meta.properties.tmp",
    "bootstrap.checkpoint",
    "passwd",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("place", [("actions", 0, "file"), ("actions", 1, "file")], ids=["truncate", "put"])
def test_paths_that_lead_elsewhere_are_refused(path: str, place: tuple[object, ...]) -> None:
    """The source of a plan is unknown: it must not reach files other than Kafka's."""
    refused(at(*place, to=path))


@pytest.mark.parametrize("path", PATHS[:14])
def test_guards_and_sources_and_directories_that_lead_elsewhere_are_refused(path: str) -> None:
    if path[:1] in ("", "/", ".") or path[-1:] in ("/", ".", "\0") or "//" in path or ".." in path:
        refused(at("actions", 1, "from", to=path))
    if not os.path.isabs(path) or "\0" in path:
        refused(at("unchanged", 0, "file", to=path))
    refused(at("cut_out", 0, "file", to=path))
    if path:
        refused(at("directory_times", 0, "directory", to=path))


def test_a_source_elsewhere_is_only_looked_at() -> None:
    """A file that a plan copies from another disk must not have changed; nothing is synced or done there."""
    members = json.loads(WRITTEN)
    at("unchanged", 0, "file", to="/backup/orders-3/00000000000000001841.log")(members)
    members["unchanged"][0].pop("sync", None)
    assert read_plan(json.dumps(members).encode()).guards[0].file.startswith("/backup/")
    members["unchanged"][0]["sync"] = True
    refused(lambda plan: plan.update(members))


def refused(change: Change) -> str:
    members = json.loads(WRITTEN)
    change(members)
    with pytest.raises(PlanError) as caught:
        read_plan(json.dumps(members).encode())
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return str(caught.value)


ODD = {
    "another version": at("klog_plan", to=2),
    "a version that is not a number": at("klog_plan", to=True),
    "no version": without("klog_plan"),
    "an id that is a path": at("id", to="../x"),
    "an empty id": at("id", to=""),
    "no log dir": at("log_dirs", to=[]),
    "a relative log dir": at("log_dirs", 0, to="data"),
    "a log dir with dots": at("log_dirs", 0, to="/data/../etc"),
    "a log dir that is a number": at("log_dirs", 0, to=7),
    "one log dir twice": at("log_dirs", 1, to="/data/one"),
    "one backup for two": at("backups", to=["/b"]),
    "one backup twice": at("backups", 1, to="/data/klog-backup/x"),
    "a relative backup": at("backups", 0, to="b"),
    "a relative staging": at("staging", 0, to="b"),
    "actions that are no list": at("actions", to={}),
    "an action that is none": at("actions", 0, to="truncate"),
    "an unknown action": at("actions", 0, "do", to="chmod"),
    "an unknown member": at("actions", 0, "mode", to=0),
    "a log dir that is not there": at("actions", 1, "log_dir", to=2),
    "a log dir before the first": at("actions", 1, "log_dir", to=-1),
    "a truncation that grows": at("actions", 0, "before", "size", to=8000),
    "a truncation of two sizes": at("actions", 0, "size", to=1),
    "a truncation without its size": without("actions", 0, "size"),
    "a truncation of nothing": without("actions", 0, "before"),
    "a put without a source": without("actions", 1, "from"),
    "a put of nothing": without("actions", 1, "after"),
    "a removal that leaves something": at("actions", 4, "after", to={}),
    "a removal of nothing": without("actions", 4, "before"),
    "states that do not follow": at("actions", 3, "before", "size", to=1),
    "a state that is there twice": at("actions", 3, "after", to=json.loads(WRITTEN)["actions"][2]["before"]),
    "a digest of another kind": at("actions", 0, "before", "md5", to="a"),
    "two digests": at("actions", 0, "before", "sha256", to="a" * 64),
    "a digest in capitals": at("actions", 0, "before", "crc32c", to="A" * 8),
    "a short digest": at("actions", 0, "before", "crc32c", to="a"),
    "a digest that is a number": at("actions", 0, "before", "crc32c", to=1),
    "no digest": without("actions", 0, "before", "crc32c"),
    "a negative size": at("unchanged", 0, "size", to=-1),
    "a size that is text": at("unchanged", 0, "size", to="5"),
    "a size that is true": at("unchanged", 0, "size", to=True),
    "a size that is a fraction": at("unchanged", 0, "size", to=1.5),
    "a size beyond all files": at("unchanged", 0, "size", to=2**63),
    "a mode with other bits": at("actions", 0, "before", "mode", to=0o100644),
    "a mode with the next bit": at("actions", 0, "before", "mode", to=0o10000),
    "an owner that means nobody": at("actions", 0, "before", "uid", to=2**32 - 1),
    "no time": without("unchanged", 0, "modified_ns"),
    "a source that is used twice": at("actions", 3, "from", to="recovery-point-offset-checkpoint"),
    "a cut of nothing": at("cut_out", 0, "end", to=8192),
    "a cut beyond the end": at("cut_out", 0, "end", to=9227),
    "a cut out of another file": at("cut_out", 0, "file", to="orders-3/00000000000000000000.log"),
    "facts that are none": at("cut_out", 0, "facts", to=[]),
    "no_lock beyond the log dirs": at("no_lock", to=[2]),
    "losses that are text": at("losses", to="none"),
    "findings that are text": at("findings", 0, to="none"),
    "kept that is a number": at("kept", to=5),
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_what_is_odd_is_refused(change: Change) -> None:
    refused(change)


def an_append(before: int = 8192, added: int = 808, after: int = 9000) -> Plan:
    action = Action(APPEND, LOG, state(before, "b"), state(after, "c"), f"{LOG}~added", 0, state(added, "d"))
    return a_plan()._replace(actions=(action,), cuts=())


def test_all_bits_of_a_mode_are_read_again() -> None:
    """A plan whose file has the sticky bit must be one that klog apply takes."""
    first = a_plan().actions[0]._replace(before=state(9226, "a", "crc32c")._replace(mode=0o7777))
    plan = a_plan()._replace(actions=(first, *a_plan().actions[1:]))
    assert read_plan(b"".join(plan_pieces(plan))) == plan


def test_an_append_is_read_again() -> None:
    assert read_plan(b"".join(plan_pieces(an_append()))) == an_append()


@pytest.mark.parametrize(
    "sizes", [(8192, 0, 8192), (8192, 807, 9000), (8192, 809, 9000), (9000, 808, 9000), (9000, 808, 8192)]
)
def test_an_append_that_does_not_add_up_is_refused(sizes: tuple[int, int, int]) -> None:
    """The bytes behind the old end would be cut off, or the appended ones would be missing."""
    with pytest.raises(PlanError, match="lacks what it needs"):
        read_plan(b"".join(plan_pieces(an_append(*sizes))))


HOSTILE = {
    "no JSON": b"klog",
    "nothing": b"",
    "no object": b"[1]",
    "not UTF-8": b'{"klog_plan":"\xff"}',
    "deep": b"[" * 1_000_000,
    "deep objects": b'{"a":' * 200_000,
    "a long number": b'{"klog_plan":' + b"9" * 100_000 + b"}",
    "not a number": b'{"klog_plan":NaN}',
    "infinity": b'{"klog_plan":1e999999}',
    "a member twice": WRITTEN.replace(b'"id":', b'"id":"x","id":', 1),
    "cut off": WRITTEN[:-10],
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_is_refused(data: bytes) -> None:
    with pytest.raises(PlanError) as caught:
        read_plan(data)
    assert len(str(caught.value)) < 400


def test_a_plan_that_is_too_large_is_not_looked_at() -> None:
    class Large(bytes):
        def __len__(self) -> int:
            return MAX_BYTES + 1

    with pytest.raises(PlanError, match="larger"):
        read_plan(Large(WRITTEN))


def test_members_that_later_versions_add_are_passed_over() -> None:
    members = json.loads(WRITTEN)
    members["later"] = [1]
    assert read_plan(json.dumps(members).encode()) == a_plan()


def test_the_usual_staging_is_in_the_backup() -> None:
    assert a_plan()._replace(staging=()).staged(1) == "/data/klog-backup/x-1/staged"
    assert a_plan().staged(0) == "/plan.staged/0"
