"""The executor: what is planned is done, whole, or not at all, and can be taken back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from klog.apply import apply
from klog.disk import Disk
from klog.draft import Draft, Staging, backup_places, make_plan, plan_id
from klog.plan import STAGED, Plan

from tests.power import MODELS, cut_everywhere

NOW = 1_795_239_019_000
LOG = "orders-3/00000000000000001841.log"


def name(base: int, kind: str, partition: str = "orders-3") -> str:
    return f"{partition}/{base:020}.{kind}"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A log dir with two partitions; the files' content is nobody's business here, their names and order are."""
    data = tmp_path / "original"
    for partition in ("orders-3", "orders-4"):
        for base in (1841, 1900):
            for kind, size in (("log", 3000), ("index", 24), ("timeindex", 36), ("snapshot", 60)):
                path = data / name(base, kind, partition)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(f"{partition} {base} {kind} ".encode() * (size // 16))
        (data / partition / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    (data / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\norders 3 2000\n")
    (data / ".kafka_cleanshutdown").write_bytes(b'{"version":0}')
    for at, path in enumerate(sorted(data.rglob("*"))):
        path.chmod(0o750 if path.is_dir() else 0o640)
        os.utime(path, ns=(NOW * 1000 + at, NOW * 1000 + at))
    os.utime(data, ns=(NOW * 1000, NOW * 1000))
    return data


def plan_repair(data: Path, disk: Disk) -> Plan:
    """A plan of everything that plans can do."""
    number = plan_id("recover", NOW)
    backups = backup_places(number, [str(data)])
    staging = Staging(os.path.join(backups[0], STAGED), disk)
    drafts = []
    for partition in ("orders-3", "orders-4"):
        draft = Draft(str(data), 0, staging)
        log = name(1841, "log", partition)
        draft.truncate(name(1841, "index", partition), 0)
        draft.remove(name(1900, "snapshot", partition))
        draft.remove(name(1900, "index", partition))
        draft.remove(name(1900, "log", partition))
        draft.cut_out(log, 1500, 2000, "bad-crc", first_offset=1850)
        if partition == "orders-3":
            draft.truncate(log, 1500)
        else:
            draft.put(log, [b"new " * 300, b"log " * 300])
        draft.put(name(1841, "index", partition), [b"entries!"])
        draft.put(name(1841, "timeindex", partition), [b"entries of time"])
        draft.put(name(1841, "txnindex", partition), [b"aborted"], like=log)
        draft.put(f"{partition}/leader-epoch-checkpoint", [b"0\n1\n1 0\n"], modified_ns=NOW)
        draft.remove(name(1900, "timeindex", partition))
        drafts.append(draft)
    first, last = Draft(str(data), 0, staging), Draft(str(data), 0, staging)
    first.remove(".kafka_cleanshutdown")
    last.put("recovery-point-offset-checkpoint", [b"0\n1\norders 3 1900\n"])
    last.put("cleaner-offset-checkpoint", [b"0\n0\n"], like="recovery-point-offset-checkpoint")
    return make_plan(number, "klog recover data --apply", [str(data)], backups, [first, *drafts, last], NOW)


def repair(data: Path, disk: Disk) -> None:
    if (data / ".kafka_cleanshutdown").exists():
        apply(plan_repair(data, disk), disk)


@pytest.mark.parametrize("model", MODELS)
def test_power_cut_before_any_call(original: Path, tmp_path: Path, model: str) -> None:
    """Whatever a disk had kept: what was begun is finished, what was not is untouched, and both can be taken back."""
    assert cut_everywhere(original, tmp_path, repair, models=(model,)) > 100
