"""Log dirs as operators have them: behind links, on other mounts, of others, read-only, large, of many files."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran, writable_copy
from tests.oracles.plain.encode import Record, batch
from tests.support.measure import measured
from tests.support.power import less_pointers, only_root, tree

NOW = "--now=1750000000000"
NOBODY = 65534


@pytest.fixture
def wreck(tmp_path: Path) -> Path:
    """A log dir with a torn tail."""
    return writable_copy(FIXTURES / "crash/torn-in-batch", tmp_path / "wreck" / "data")


def as_nobody(run: Callable[[], Ran]) -> Ran:
    """Run klog in a child that is a user who owns nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writer, pickle.dumps(run()))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    ran: Ran = pickle.loads(answer)
    return ran


def test_a_log_dir_behind_a_link_is_repaired_where_it_is(wreck: Path, tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """The link is kept, and the backup is beside its target: on its file system, where links of files are possible."""
    link = tmp_path / "link"
    link.symlink_to(wreck)
    before = tree(wreck)
    done = klog("recover", link, NOW, "--apply", "--output=json")
    assert done.exit_code == 1
    said = json.loads(done.stdout)
    assert Path(said["backup"]).is_relative_to(wreck.parent)
    assert link.is_symlink()
    assert klog("recover", link, NOW).exit_code == 0
    assert klog("undo", said["backup"], "--apply").exit_code == 0
    assert tree(wreck) == before


def test_a_backup_on_another_mount_brings_everything_back(
    wreck: Path, elsewhere: Path, klog: Callable[..., Ran]
) -> None:
    """A full disk is what many repairs begin with."""
    assert wreck.stat().st_dev != elsewhere.stat().st_dev, "no other mount to test with"
    before = tree(wreck)
    done = klog("recover", wreck, "--salvage", NOW, "--apply", "--backup", elsewhere / "kept", "--output=json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["backup"] == str(elsewhere / "kept")
    assert sorted(path.name for path in wreck.parent.iterdir()) == ["data"]
    (pointer,) = wreck.glob("*.klog-backup")
    assert pointer.read_text() == str(elsewhere / "kept")
    assert klog("undo", elsewhere / "kept", "--apply").exit_code == 0
    assert less_pointers(tree(wreck)) == before


@only_root
def test_media_that_cannot_be_written_are_looked_at_and_left_alone(elsewhere: Path, klog: Callable[..., Ran]) -> None:
    """Planning needs only read permission; --apply reports in one line that it lacks more, and leaves nothing
    behind."""
    data = writable_copy(FIXTURES / "crash/torn-in-batch", elsewhere / "data")
    before, beside = tree(elsewhere), sorted(path.name for path in elsewhere.iterdir())
    planned = as_nobody(lambda: klog("recover", data, NOW))
    assert planned.exit_code == 4
    assert b"cut      00000000000000000364.log" in planned.stdout
    refused = as_nobody(lambda: klog("recover", data, NOW, "--apply"))
    assert refused.exit_code == 8
    (line,) = refused.stderr.splitlines()
    assert b"Permission denied" in line
    assert (tree(elsewhere), sorted(path.name for path in elsewhere.iterdir())) == (before, beside)


@only_root
def test_a_mount_that_is_read_only_is_looked_at_and_left_alone(
    wreck: Path, elsewhere: Path, klog: Callable[..., Ran]
) -> None:
    """The same for root, whom permissions do not stop."""
    mount = elsewhere / "mount"
    mount.mkdir()
    options = ("mount", "--bind", "-o", "ro", str(wreck.parent), str(mount))
    if subprocess.run(options, capture_output=True, check=False).returncode:
        return  # not allowed to mount: test_power.py has the system refuse every call in the same way
    try:
        assert klog("recover", mount / "data", NOW).exit_code == 4
        refused = klog("recover", mount / "data", NOW, "--apply")
        assert refused.exit_code == 8
        assert b"Read-only file system" in refused.stderr
    finally:
        subprocess.run(("umount", str(mount)), check=True)


@only_root
def test_new_files_belong_to_whom_the_partition_belongs(wreck: Path, klog: Callable[..., Ran]) -> None:
    """A broker that may not write its own index does not start."""
    for path in (wreck / "torn-0", *(wreck / "torn-0").iterdir()):
        os.chown(path, 4711, 4712)
        path.chmod(0o750 if path.is_dir() else 0o640)
    (wreck / "torn-0/00000000000000000090.timeindex").unlink()
    (wreck / "torn-0/leader-epoch-checkpoint").unlink()
    before = tree(wreck)
    done = klog("recover", wreck, NOW, "--apply", "--output=json")
    assert done.exit_code == 1
    made = {one["file"] for one in json.loads(done.stdout)["actions"] if "before" not in one}
    assert {
        "torn-0/00000000000000000090.timeindex",
        "torn-0/leader-epoch-checkpoint",
        "torn-0/00000000000000000406.snapshot",
    } <= made
    for path in (wreck / "torn-0").iterdir():
        status = path.stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (4711, 4712, 0o640), path
    assert klog("undo", json.loads(done.stdout)["backup"], "--apply").exit_code == 0
    assert tree(wreck) == before


def test_a_segment_of_two_gibibytes_that_is_mostly_a_hole_is_cut_without_filling_the_disk(
    wreck: Path, klog: Callable[..., Ran]
) -> None:
    """Preallocated to the largest size there is: the hole is neither read through nor written to the backup."""
    log = wreck / "torn-0/00000000000000000364.log"
    torn = log.read_bytes()
    log.write_bytes(torn[:8091])
    os.truncate(log, 2**31 - 1)
    began = time.process_time()
    done = klog("recover", wreck, NOW, "--apply", "--output=json")
    assert done.exit_code == 1, done
    assert time.process_time() - began < 20
    assert log.stat().st_size == 8091
    said = json.loads(done.stdout)
    assert said["lost"] == []
    kept = [path for path in Path(said["backup"]).rglob("*") if path.is_file()]
    assert sum(path.stat().st_blocks * 512 for path in kept) < 1 << 20
    assert klog("undo", said["backup"], "--apply").exit_code == 0
    assert log.stat().st_size == 2**31 - 1
    assert log.stat().st_blocks * 512 < 1 << 20
    with log.open("rb") as file:
        assert file.read(8091) == torn[:8091]


@pytest.mark.parametrize(
    ("segments", "most_bytes"), [(2_000, 60_000_000), pytest.param(10_000, 120_000_000, marks=pytest.mark.long)]
)
def test_thousands_of_segments_are_repaired_with_little_memory(segments: int, most_bytes: int, elsewhere: Path) -> None:
    """Months of a slow topic; half of the indexes are missing."""
    partition = elsewhere / "data/orders-3"
    partition.mkdir(parents=True)
    for base in range(segments):
        log = batch([Record(base, 1_750_000_000_000 + base, b"k", b"v")])
        (partition / f"{base:020}.log").write_bytes(log)
        for kind in ("index", "timeindex") if base % 2 else ():
            (partition / f"{base:020}.{kind}").write_bytes(b"")
    shutil.copy(FIXTURES / "modern/meta.properties", partition.parent)
    shutil.copy(FIXTURES / "modern/plain-1/partition.metadata", partition)
    command = [sys.executable, "-m", "klog_cli.app", "recover", str(elsewhere / "data"), NOW, "--apply", "--quiet"]
    done = measured(command, elsewhere)
    assert done.exit_code == 1, done
    assert done.rss < most_bytes, f"{done.rss >> 20} MiB"
    assert len(list(partition.glob("*.index"))) == segments


def test_a_log_on_a_disk_that_is_not_there_keeps_its_indexes(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """Its indexes look like orphans; a broker removes them, and a repair must not."""
    log_dir = writable_copy(FIXTURES / "modern", tmp_path / "data")
    log = sorted((log_dir / "idempotent-0").glob("*.log"))[1]
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "not-mounted")
    before = sorted(log_dir.rglob("*"))
    done = klog("recover", log_dir, "--apply", "--output", "json")
    said = [one for one in json.loads(done.stdout)["partitions"] if one["directory"] == "idempotent-0"]
    assert said[0]["reason"] == f"{log.name}: neither a file nor a link to one"
    assert done.exit_code == 4
    assert sorted(log_dir.rglob("*")) == before
