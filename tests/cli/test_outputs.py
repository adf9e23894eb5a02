"""Nothing that klog writes goes into a log dir or a partition directory, nor over one of Kafka's files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from klog.base.errors import PlanError, UsageError
from klog.data_dir.disk import refused_outputs
from klog.jobs.output_commit import RUN, JobOutput, check_target, lock_target
from klog_cli.command_tree import build

from tests.conftest import FIXTURES, Ran, run_klog, writable_copy
from tests.support import tiers
from tests.support.power import HastyDisk, less_pointers, only_root, tree

Klog = Callable[..., Ran]
SEGMENT = "00000000000000000364.log"


# what writes: every option that names a place, found by walking the commands


class Writer(NamedTuple):
    """A command line that writes what *option* of *command* names; `{}` in *words* is where the log dirs are.

    *is_idle*: there is nothing to write, but the place is judged all the same.
    """

    command: str
    option: str
    words: str
    is_file: bool = True
    is_spark: bool = False
    is_idle: bool = False

    def run(self, root: Path, place: str | Path) -> Ran:
        if "/tiered/" in self.words and not (root / "tiered").exists():  # few need it
            tiers.unpack(root / "tiered")
        return run_klog(*self.command.split(), *self.words.format(root).split(), self.option, place)

    def __str__(self) -> str:
        return f"{self.command} {self.option}"


CUT = "{}/data/calm-0 --to-offset 5"
KEYS = "{}/data/keys-none-0 --policy compact"
WRITE = "{0}/empty.jsonl --to {0}/data"
ADOPT = "{0}/quorum/broker-1 --to {0}/quorum/broker-1"
ATTACH = "--remote {0}/tiered/tier --to {0}/tiered/data -t gone"
DISKS = "{}/data"
QUORUM = "{0}/quorum/broker-1 {0}/quorum/broker-2 {0}/quorum/broker-3 --voters 1@one:1,2@two:2,3@three:3"
SCHEMA = r"""{"key":"{\"keytype\":\"SCHEMA\",\"subject\":\"a\",\"version\":1}","value":"{\"id\":1,\"schema\":\"7\"}"}"""
WRITERS = (
    Writer("dump", "--to", "{}/data/torn-0 --output jsonl"),
    Writer("bytes", "--to", "{}/data/torn-0 --offset 301 --raw"),
    Writer("space", "--to", "{}/data --output prometheus"),
    Writer("verify", "--to", "{}/data --output prometheus"),
    Writer("recover", "--rescue-records", "{}/data", is_idle=True),
    Writer("recover", "--save-plan", "{}/data"),
    Writer("recover", "--backup", "{}/data", is_file=False),
    Writer("recover", "--backup", "{}/data --apply", is_file=False),
    Writer("truncate", "--save-plan", CUT),
    Writer("truncate", "--backup", f"{CUT} --apply", is_file=False),
    Writer("compact", "--save-plan", KEYS),
    Writer("compact", "--backup", f"{KEYS} --apply", is_file=False),
    Writer("compact", "--to", KEYS, is_file=False),
    Writer("write", "--save-plan", WRITE, is_idle=True),
    Writer("write", "--backup", WRITE, is_file=False, is_idle=True),
    Writer("write", "--backup", f"{WRITE} --apply", is_file=False, is_idle=True),
    Writer("groups", "--to", f"{FIXTURES}/modern --group sticky --output reset-offsets"),
    Writer("report", "--to", "{}/data"),
    Writer("adopt", "--save-plan", ADOPT, is_idle=True),
    Writer("adopt", "--backup", ADOPT, is_file=False, is_idle=True),
    Writer("adopt", "--backup", f"{ADOPT} --apply", is_file=False, is_idle=True),
    Writer("remote attach", "--save-plan", ATTACH),
    Writer("remote attach", "--backup", ATTACH, is_file=False),
    Writer("remote attach", "--backup", f"{ATTACH} --apply", is_file=False),
    Writer("follow", "--to", "127.0.0.1:1 --timeout 1ms", is_file=False),
    Writer("remote fetch", "--to", "{0}/data --remote {0}/data --remote-layout local", is_file=False, is_idle=True),
    Writer("undo", "--backup", "{}/kept --apply", is_file=False),
    Writer("replicas rescue", "--to", f"{DISKS} --if-leads 1", is_idle=True),
    Writer("schemas export", "--to", "{}/schemas.jsonl"),
    Writer("replicas plan", "--save-plan", DISKS),
    Writer("replicas plan", "--backup", DISKS, is_file=False),
    Writer("replicas plan", "--backup", f"{DISKS} --apply", is_file=False, is_idle=True),
    Writer("metadata plan", "--save-plan", QUORUM),
    Writer("metadata plan", "--backup", f"{QUORUM} --apply", is_file=False),
    Writer("export", "--to", "{}/data/calm-0", is_file=False),
    Writer("spark export", "--to", "{}/data/calm-0", is_file=False, is_spark=True),
    Writer("spark compact", "--to", "{}/data/calm-0", is_file=False, is_spark=True),
    Writer("spark compact", "--to", "{}/data/calm-0 --output log", is_file=False, is_spark=True),
)
TIERED = (
    *(
        "describe",
        "dump",
        "export",
        "fetch",
        "lookup",
        "records",
        "report",
        "search",
        "serve",
        "space",
        "stats",
        "timeline",
        "verify",
    ),
    *("spark compact", "spark export", "spark search", "spark stats", "spark verify"),
)
"""Commands that read remote storage beside log dirs."""
READ = {
    ("apply", "--backup"),  # where a backup is to be looked for
    ("dump", "--files"),
    ("dump", "--keys-from"),
    ("lookup", "--batch"),
    ("partition", "--keys-from"),
    ("compact", "--metadata"),
    ("write", "--metadata"),
    ("follow", "--security-config"),
    ("write", "--to"),  # a log dir is changed by a plan; a new one has its own test
    ("doctor", "--server-properties"),
    ("space", "--server-properties"),
    ("space", "--metadata"),
    ("schemas check", "--schemas"),
    *((one, "--schemas") for one in ("dump", "search", "records", "bytes", "export", "spark search", "spark export")),
    ("adopt", "--to"),
    ("assign", "--metadata"),
    ("assign", "--check"),
    ("records", "--keys-from"),
    ("search", "--keys-from"),
    ("spark search", "--keys-from"),
    ("spark compact", "--metadata"),
    *((f"replicas {verb}", "--metadata") for verb in ("diff", "rescue", "plan")),
    ("replicas rescue", "--plan"),
    *((one, option) for one in TIERED for option in ("--remote", "--remote-keys")),
    ("doctor", "--remote"),
    ("doctor", "--remote-keys"),
    ("remote attach", "--to"),
    ("remote attach", "--from"),
    ("remote attach", "--remote"),
    ("remote attach", "--remote-keys"),
    ("remote ls", "--remote"),
    ("remote ls", "--remote-keys"),
    ("adopt", "--remote"),
    ("adopt", "--remote-keys"),
    ("remote fetch", "--remote"),
    ("remote fetch", "--remote-keys"),
    ("remote orphans", "--remote"),
    ("remote verify", "--remote"),
    ("remote verify", "--remote-keys"),
    *((command, "--with") for command in ("audit misrouted", "audit headers", "spark audit")),
    *((f"spark {verb}", "--ship") for verb in ("verify", "audit", "stats", "search", "export", "compact")),
}
ARGUMENTS_READ = {
    "BOOTSTRAP",
    "DIR",
    "DIR...",
    "DISK...",
    "FILE",
    "ID...",
    "INPUT...",
    "KEY...",
    "LOG_DIR...",
    "PARTITION",
    "PATH",
    "PATH...",
    "PLAN",
    "SHELL",
    "SOURCE...",
    "WORD...",
}
"""Arguments without an option are read, or changed by a plan."""
NO_PLACE = (
    *(
        "ACTION",
        "BYTES",
        "DURATION",
        "DURATION|SIZE",
        "EXPR",
        "FORMAT",
        "GLOB",
        "GUID",
        "latest|each|ID|SUBJECT:VERSION",
        "VERSION",
        "LIST",
        "HOST:PORT",
        "HOST[:PORT]",
        "K=V",
        "N",
        "N|ID",
        "NAME[=VALUE]",
        "POLICY",
        "RATIO",
        "REGEX",
        "SHARE",
        "SIZE",
        "TEXT",
        "TIME",
        "URL",
    ),
    *(
        "1/N",
        "FRACTION",
        "LIST",
        "N|keep",
        "CreateTime|LogAppendTime",
        "abort",
        "NAME",
        "4.3|3.9|2.8",
        "ID",
        "ID=SUBJECT:VERSION",
        "compact",
        "NAME=VALUE",
        "ORDER",
        "T-P",
        "T-P=N",
        "TOPIC-N",
        "newest|longest|kafka|N",
    ),
    *("ID@HOST:PORT,...", "ID,ID,...", "ID:RACK,...", "ID,ID,...|none"),
)
NAMES = {"--topic", "--partition"}


def commands(found: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the commands below *found*, the hidden ones too, by their words."""
    for name, child in getattr(found, "commands", {}).items():
        yield from commands(child, (*words, name))
    if not getattr(found, "commands", None):
        yield " ".join(words), found


def longest_name(param: Any) -> str:
    return max(param.opts, key=len)


def may_be_a_place(param: Any) -> bool:
    """Whether an option takes text that no other meaning is known of."""
    if longest_name(param) in NAMES:
        return False
    if param.is_flag or not param.type.name.startswith("str"):
        return param.type.name not in ("str", "bool", "boolean", "int", "float", "int range", "float range")
    metavar = param.metavar or ""
    is_choice = re.fullmatch(r"[a-z0-9_-]+(\|[a-z0-9_-]+)+", metavar)
    return not is_choice and metavar not in NO_PLACE


def test_every_option_that_names_a_place_is_known_here() -> None:
    """A new one fails until it is declared whether it writes, and then all of the places below are tried on it."""
    found: set[tuple[str, str]] = set()
    arguments: set[str] = set()
    for name, command in commands(typer.main.get_command(build())):
        options = [param for param in command.params if param.param_type_name == "option"]
        found |= {(name, longest_name(param)) for param in options if may_be_a_place(param)}
        arguments |= {param.metavar for param in command.params if param.param_type_name == "argument"}
    assert found == READ | {(writer.command, writer.option) for writer in WRITERS}
    assert arguments == ARGUMENTS_READ


# where nothing is written


def copy_into(source: Path, target: Path) -> None:
    writable_copy(FIXTURES / source, target)


UNIQUE = "0f8fad5bd9cb469fa16570867728950e"
PLACES = {
    "log dir": "data/new",
    "deep in a log dir": "data/new/deeper",
    "log dir itself": "data",
    "partition": "data/torn-0/new",
    "partition itself": "data/torn-0",
    "log that stops brokers": "data/torn-0/saved.log",
    "segment": f"data/torn-0/{SEGMENT}",
    "index": "data/torn-0/00000000000000000364.index",
    "time index": "data/torn-0/00000000000000000364.timeindex",
    "transaction index": "data/torn-0/00000000000000000090.txnindex",
    "snapshot": "data/torn-0/00000000000000000364.snapshot",
    "epochs": "data/torn-0/leader-epoch-checkpoint",
    "topic id": "data/torn-0/partition.metadata",
    "checkpoint": "data/recovery-point-offset-checkpoint",
    "identity": "data/meta.properties",
    "lock": "data/.lock",
    "marker": "data/.kafka_cleanshutdown",
    "other log dir": "other/new",
    "partition of another": "other/plain-1/new",
    "empty partition of another": "other/empty-0/new",
    "segment of another": "other/plain-1/00000000000000000000.log",
    "checkpoint of another": "other/replication-offset-checkpoint",
    "identity of another": "other/meta.properties",
    "log dir that tells by its lock": "locked/new",
    "lock of another": "locked/.lock",
    "partition alone": "alone/torn-0/new",
    "deep in a partition alone": "alone/torn-0/new/deeper",
    "segment alone": f"alone/torn-0/{SEGMENT}",
    "partition to come": f"alone/torn-0.{UNIQUE}-future/new",
    "partition to go": f"alone/torn-0.{UNIQUE}-delete/new",
    "stray partition": f"alone/torn-0.{UNIQUE}-stray/new",
    "partition by another name": "alone/blob/new",
    "segment in no partition": f"loose/{SEGMENT}",
    "swap file in no partition": f"loose/{SEGMENT}.swap",
    "checkpoint in no partition": "lone/leader-epoch-checkpoint",
    "link to a segment": "links/segment",
    "link to an index": "links/index",
    "link to a checkpoint": "links/checkpoint",
    "link to an identity": "links/identity",
    "link to a log dir": "links/data",
    "link to nothing yet": "links/dangling",
    "link to a link": "links/twice",
    "link to a segment alone": "links/alone",
    "linked log dir": "links/data/new",
    "linked partition": "links/partition/new",
    "linked twice": "links/again/torn-0/new",
    "linked log dir and segment": f"links/data/torn-0/{SEGMENT}",
    "up from a linked partition": "links/partition/../new",
    "up into a partition": "links/inner/../new",
    "up and down": "work/../data/torn-0/../new",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log dirs and partitions of many kinds, and links to them.  The attempts of these tests must not change it."""
    root = tmp_path_factory.mktemp("root")
    copy_into(Path("crash/torn-in-batch"), root / "data")
    (root / "empty.jsonl").touch()
    (root / "schemas.jsonl").write_text(SCHEMA)
    copy_into(Path("compaction/before/keys-none-0"), root / "data/keys-none-0")
    copy_into(Path("replicas/quorum"), root / "quorum")
    tiers.unpack(root / "tiered")
    for name in ("plain-1", "tx-0"):
        copy_into(Path("modern") / name, root / "other" / name)
    for file in ("meta.properties", "replication-offset-checkpoint"):
        shutil.copyfile(FIXTURES / "modern" / file, root / "other" / file)
    (root / "other/empty-0").mkdir()
    for name in ("torn-0", *(f"torn-0.{UNIQUE}-{state}" for state in ("future", "delete", "stray")), "blob"):
        copy_into(Path("crash/torn-in-batch/torn-0"), root / "alone" / name)
    copy_into(Path("modern/plain-1"), root / "locked/plain-1")
    (root / "locked/.lock").touch()
    for name in ("loose", "lone", "links", "work"):
        (root / name).mkdir()
    for name in (f"loose/{SEGMENT}", f"loose/{SEGMENT}.swap", "lone/leader-epoch-checkpoint"):
        (root / name).write_bytes(b"the only copy")
    link(root)
    writable_copy(FIXTURES / "crash/torn-in-batch", root / "work/repaired")
    assert run_klog("recover", root / "work/repaired", "--apply", "--backup", root / "kept").exit_code == 1
    return root


def link(root: Path) -> None:
    (root / "data/torn-0/inner").mkdir()
    for name, target in {
        "segment": f"../data/torn-0/{SEGMENT}",
        "index": "../data/torn-0/00000000000000000364.index",
        "checkpoint": "../other/replication-offset-checkpoint",
        "identity": "../other/meta.properties",
        "data": root / "data",
        "dangling": "../other/tx-0/not-yet",
        "twice": "dangling",
        "alone": f"../alone/torn-0/{SEGMENT}",
        "partition": "../data/torn-0",
        "again": "data",
        "inner": "../data/torn-0/inner",
    }.items():
        (root / "links" / name).symlink_to(target)


def whole(root: Path) -> dict[str, object]:
    """Return all names below *root* with their targets, and all times, sizes, modes and owners.

    Content is not read: every write to a file changes st_ctime, which cannot be set.
    """
    found: dict[str, object] = {}
    folders = [str(root)]
    for folder in folders:
        found[folder] = _facts(os.lstat(folder))
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    target = os.readlink(entry.path) if entry.is_symlink() else ""
                    status = entry.stat(follow_symlinks=False)
                    found[entry.path] = target, status.st_size, status.st_ctime_ns, *_facts(status)
    return found


def _facts(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_nlink, status.st_mode, status.st_uid, status.st_mtime_ns


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts a session has not asked early enough."""

    def start(*_: object, **__: object) -> None:
        pytest.fail("Spark was started", pytrace=False)

    monkeypatch.setattr("klog.spark.run.session", start)


def refused(done: Ran, place: str | Path) -> bool:
    """Whether one line names the refusal to write at *place*, or in it, and the next step."""
    said = done.stderr.decode()
    assert (done.exit_code in (8, 16), done.stdout, said.count("\n")) == (True, b"", 1), done
    # A backup is shown by its own path: with the plan's id behind, and the end of `..`.
    is_named = any(said.startswith(f"klog: {one}") for one in (place, os.path.abspath(place), os.path.realpath(place)))
    return is_named and said.endswith("; give a path outside of log dirs and partitions\n")


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_written_where_kafkas_files_are(root: Path, place: str) -> None:
    """Not one that a command names, nor any other; by whatever name it is reached, by whatever command."""
    before, path = whole(root), f"{root}/{PLACES[place]}"
    for writer in WRITERS:
        done, after = writer.run(root, path), whole(root)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert (str(writer), changed) == (str(writer), set())
        is_read = writer.command == "dump" and b"that is a file to be read" in done.stderr
        assert refused(done, path) or is_read, (str(writer), done)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("writer", WRITERS, ids=str)
def test_nothing_is_written_where_the_operator_stands(
    root: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare name is in the working directory, and that is where operators look at partitions."""
    before = whole(root)
    for folder in ("data", "data/torn-0", "other", "alone/torn-0"):
        monkeypatch.chdir(root / folder)
        for name in ("new", SEGMENT, "./new", "../torn-0/new" if "torn-0" in folder else "plain-1/../new"):
            if name == "plain-1/../new" and folder != "other":
                continue
            done = writer.run(root, name)
            assert refused(done, name) or b"to be read" in done.stderr, (folder, name, done)
    assert whole(root) == before


def test_a_place_that_is_refused_is_told_with_its_reason(root: Path) -> None:
    """The line names the obstacle, and the end of a link whose name is misleading."""
    said = {place: run_klog("dump", root / "loose" / SEGMENT, "--to", root / place).stderr.decode() for place in SAYS}
    for place, says in SAYS.items():
        assert f"klog: {root / place}: {says.format(root)}" in said[place]


SAYS = {
    "other/new": "lies in the log dir {0}/other (it has meta.properties), which is for Kafka's files alone; give a",
    "links/segment": "leads to {0}/data/torn-0/00000000000000000364.log, which lies in the log dir {0}/data",
    "alone/torn-0/new": "lies in the partition directory {0}/alone/torn-0 (it has ",
    "lone/leader-epoch-checkpoint": "is one of Kafka's files; give a path",
}


# pipes and devices


def test_a_pipe_is_written_into(klog: Klog, root: Path, tmp_path: Path) -> None:
    """A new file in its place would leave the reader waiting for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    before = os.lstat(pipe)
    words = ("dump", root / "data/torn-0", "--output", "jsonl")
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        try:
            done = klog(*words, "--to", pipe)
            assert reader.communicate(timeout=120)[0] == klog(*words).stdout != b""
        finally:
            reader.kill()
    assert (done.stdout, os.lstat(pipe).st_ino, os.listdir(tmp_path)) == (b"", before.st_ino, ["pipe"])


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("writer", [writer for writer in WRITERS if writer.is_file], ids=str)
def test_what_a_process_has_open_is_written_into(root: Path, writer: Writer, tmp_path: Path) -> None:
    """As root a new file in its place would be the whole machine's /dev/stdout, or its /dev/null."""
    stdout = tmp_path / "stdout"
    stdout.symlink_to("/dev/null")
    words = [*writer.command.split(), *writer.words.format(root).split(), writer.option, stdout]
    before = os.lstat("/dev/null").st_ino
    done = run_klog(*words)
    if writer.option == "--save-plan" and not writer.is_idle:
        assert (done.exit_code, b"is a pipe or a device; a plan needs a file" in done.stderr) == (8, True)
    assert done.exit_code in (0, 4, 8, 16)
    assert os.readlink(stdout) == "/dev/null"
    assert (os.lstat("/dev/null").st_ino, os.listdir(tmp_path)) == (before, ["stdout"])


@pytest.mark.parametrize("place", ["/dev/null", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_devices_are_no_files(place: str) -> None:
    """The gate alone: a test that fails must not cost the machine its /dev/null."""
    refused_outputs.check_output(place)
    assert refused_outputs.is_stream(place)
    assert not refused_outputs.is_stream(__file__)


def test_nothing_replaces_an_earlier_dump_when_there_is_nothing_to_dump(klog: Klog, tmp_path: Path) -> None:
    """A path with a typing error must not destroy the file of yesterday."""
    earlier = tmp_path / "out.jsonl"
    earlier.write_text("yesterday\n")
    done = klog("dump", tmp_path / "orders-1", "--output", "jsonl", "--to", earlier)
    assert (done.exit_code, done.stderr.decode()) == (16, f"klog: {tmp_path}/orders-1: no such file\n")
    assert earlier.read_text() == "yesterday\n"
    assert os.listdir(tmp_path) == ["out.jsonl"]


# log dirs that can only be recognised by a name


def test_a_log_dir_without_files_of_its_own_is_one_when_it_is_named(klog: Klog, tmp_path: Path) -> None:
    """Nothing but partitions: a log dir, or a folder for work, in which dumps of one partition may well be put."""
    bare = tmp_path / "bare"
    copy_into(Path("modern/plain-1"), bare / "plain-1")
    before = whole(tmp_path)
    assert refused(klog("dump", bare, "--to", bare / "out"), bare / "out")
    assert refused(klog("recover", bare, "--rescue-records", bare / "out"), bare / "out")
    assert refused(klog("compact", bare, "--policy", "compact", "--to", bare / "out"), bare / "out")
    assert refused(klog("recover", bare, "--save-plan", bare / "out"), bare / "out")
    assert whole(tmp_path) == before
    assert klog("dump", bare / "plain-1", "--output", "jsonl", "--to", bare / "out").exit_code == 0
    assert klog("recover", bare / "plain-1", "--rescue-records", bare / "rescued").exit_code == 0


def test_a_partition_that_the_log_dir_links_to_is_one_wherever_it_lies(klog: Klog, tmp_path: Path) -> None:
    """It has no content, and no telling name: the log dir is recognised by its content."""
    copy_into(Path("modern/plain-1"), tmp_path / "data/plain-1")
    (tmp_path / "fast").mkdir()
    (tmp_path / "data/new-0").symlink_to("../fast")
    done = klog("dump", tmp_path / "data", "--to", tmp_path / "fast/out")
    assert refused(done, tmp_path / "fast/out")
    assert f"lies in the partition directory {tmp_path}/data/new-0" in done.stderr.decode()
    assert os.listdir(tmp_path / "fast") == []


def test_a_link_in_a_log_dir_is_not_replaced_by_a_file(klog: Klog, tmp_path: Path) -> None:
    """A partition may be a link: a file that takes its name away takes the partition away."""
    copy_into(Path("modern"), tmp_path / "data")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data/new-0").symlink_to("../elsewhere")
    before = whole(tmp_path)
    done = klog("dump", tmp_path / "data/plain-1", "--to", tmp_path / "data/new-0")
    assert refused(done, tmp_path / "data/new-0")
    assert whole(tmp_path) == before


# mounts


NOT_MOUNTED, UNSHARE_FAILED = 99, 1


def mounted(tmp_path: Path, *words: str) -> Ran | None:
    """Run klog where `mount` is `data/empty-0` once more; None if this user may not mount."""
    (tmp_path / "mount").mkdir()
    shell = f'mount --bind "$1" "$2" || exit {NOT_MOUNTED}; shift 2; exec "$@"'
    where = (str(tmp_path / "data/empty-0"), str(tmp_path / "mount"))
    klog = (sys.executable, "-m", "klog_cli.app", *words)
    command = ("unshare", "-m", "sh", "-c", shell, "sh", *where, *klog)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=60)
    is_mounted = done.returncode not in (NOT_MOUNTED, UNSHARE_FAILED)
    return Ran(done.stdout, done.stderr, done.returncode) if is_mounted else None


@only_root
def test_a_partition_that_is_mounted_elsewhere_is_one_there(tmp_path: Path) -> None:
    """It is empty, and under another name: only the inode shows it."""
    copy_into(Path("modern"), tmp_path / "data")
    (tmp_path / "data/empty-0").mkdir(exist_ok=True)
    for path in (tmp_path / "data/empty-0").iterdir():
        path.unlink()
    done = mounted(tmp_path, "dump", str(tmp_path / "data"), "--to", str(tmp_path / "mount/out"))
    if done is None:
        return  # not allowed to mount: the next test checks that it has the same inode
    assert refused(done, tmp_path / "mount/out")
    assert os.listdir(tmp_path / "data/empty-0") == []


def test_a_directory_is_known_by_its_inode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without a mount."""
    for name in ("data", "data/empty-0", "mount", "mount-of-all"):
        (tmp_path / name).mkdir()
    inode = refused_outputs._inode
    same = {
        str(tmp_path / "mount"): str(tmp_path / "data/empty-0"),
        str(tmp_path / "mount-of-all"): str(tmp_path / "data"),
    }
    monkeypatch.setattr(refused_outputs, "_inode", lambda path: inode(same.get(str(path), path)))
    for place in ("mount/out", "mount-of-all/out"):
        with pytest.raises(PlanError, match=f"{place}: lies in the "):
            refused_outputs.check_places([str(tmp_path / "data")], backups=[str(tmp_path / place)])


# output of plans


def saved(klog: Klog, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    copy_into(Path("crash/torn-in-batch"), tmp_path / "data")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "schemas.jsonl").write_text(SCHEMA)
    copy_into(Path("modern"), tmp_path / "other")
    file = tmp_path / "plan.json"
    assert klog("recover", tmp_path / "data", "--save-plan", file).exit_code == 4
    return file, json.loads(file.read_text())


@pytest.mark.parametrize("place", ["other/new", "other", "other/plain-1/new", "data/new", "link/new", "moved/kept"])
def test_a_plan_from_a_file_has_its_backup_outside(klog: Klog, tmp_path: Path, place: str) -> None:
    """An edited plan, or one written by a program, has no more rights than the command line."""
    file, plan = saved(klog, tmp_path)
    (tmp_path / "link").symlink_to("other/plain-1")
    (tmp_path / "moved/kept").mkdir(parents=True)
    (tmp_path / "moved/kept/originals").symlink_to(tmp_path / "other")
    plan["backup"], plan["backups"] = str(tmp_path / place), [str(tmp_path / place)]
    file.write_text(json.dumps(plan))
    before = whole(tmp_path)
    done = klog("apply", file)
    assert (done.exit_code, done.stdout, done.stderr.count(b"\n")) == (8, b"", 1)
    assert b"the log dir" in done.stderr
    assert whole(tmp_path) == before


def test_a_backup_whose_originals_were_moved_to_another_disk_is_still_one(klog: Klog, tmp_path: Path) -> None:
    """Originals have checkpoints among them, and look like a log dir; klog recognises them by their path."""
    copy_into(Path("crash/torn-in-batch"), tmp_path / "data")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "schemas.jsonl").write_text(SCHEMA)
    kept = tmp_path / "kept"
    before = tree(tmp_path / "data")
    assert klog("recover", tmp_path / "data", "--apply", "--backup", kept).exit_code == 1
    (kept / "originals").rename(tmp_path / "moved")
    (tmp_path / "moved/replication-offset-checkpoint").touch()
    (kept / "originals").symlink_to("../moved")
    assert klog("undo", kept, "--apply").exit_code == 0
    assert less_pointers(tree(tmp_path / "data")) == before


def test_temporary_files_stay_out_of_log_dirs(klog: Klog, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rounds of a compaction wait in the directory for temporary files."""
    before = whole(root)
    monkeypatch.setenv("TMPDIR", str(root / "other"))
    done = klog("compact", root / "data/keys-none-0", "--policy", "compact")
    assert refused(done, root / "other")
    assert whole(root) == before


# the output of a job


@pytest.mark.parametrize("place", ["data", "data/out", "data/torn-0/out", "link/out"])
def test_a_job_asks_before_it_makes_its_lock(root: Path, tmp_path: Path, place: str) -> None:
    """Its lock file in a log dir would be the broker's."""
    (tmp_path / "link").symlink_to(root / "other")
    to = str(tmp_path / place if place.startswith("link") else root / place)
    before = whole(root)
    for start in (lambda: lock_target(to, HastyDisk()).__enter__(), lambda: JobOutput(to, {}, HastyDisk())):
        with pytest.raises(UsageError, match="lies in the log dir"):
            start()
    assert whole(root) == before


def test_what_a_job_has_begun_is_not_taken_for_somebody_elses(root: Path, tmp_path: Path) -> None:
    """A log dir that is nearly done looks like one, and its run continues; directories below it are none of that
    run's."""
    to = tmp_path / "out"
    output = JobOutput(str(to), {}, HastyDisk())
    shutil.copyfile(root / "other/meta.properties", to / "meta.properties")
    with pytest.raises(UsageError, match="lies in the log dir"):
        check_target(str(to))
    Path(output.run, "finishing").touch()
    assert JobOutput(str(to), {}, HastyDisk()).run == output.run
    with pytest.raises(UsageError, match="lies in the log dir"):
        check_target(str(to / "below"))
    shutil.rmtree(to)
    to.mkdir()
    (to / RUN).symlink_to(root / "other")
    with pytest.raises(UsageError, match="which lies in the log dir"):
        check_target(str(to))


# ordinary places


FILES = [writer for writer in WRITERS if writer.is_file]
# The output of follow is copied from a cluster; its own tests have one.
DIRECTORIES = [
    writer for writer in WRITERS if not writer.is_file and not writer.is_spark and writer.command != "follow"
]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A log dir that may change, beside what looks a little like Kafka's and is not."""
    copy_into(Path("crash/torn-in-batch"), tmp_path / "data")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "schemas.jsonl").write_text(SCHEMA)
    copy_into(Path("compaction/before/keys-none-0"), tmp_path / "data/keys-none-0")
    copy_into(Path("replicas/quorum"), tmp_path / "quorum")
    for folder, names in {
        "exports/orders-3": ["old.jsonl", "1.log", "part-0.index.json"],
        "app/my-data-1": ["app.log", ".lock", "config.checkpoint"],
        "tool": [".lock", "orders-3/old.jsonl"],
        "copied": [SEGMENT, "00000000000000000364.index"],
        "read": ["leader-epoch-checkpoint"],
        "plain": [],
    }.items():
        for name in names:
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_bytes(b"old")
        (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to("plain")
    return tmp_path


ORDINARY = (
    *("new", "plain/new", "exports/orders-3/new", "app/my-data-1/new", "tool/new", "tool/orders-3/new", "copied/new"),
    *("read/new", "link/new", "data/../new", "link/../new", "data/torn-0/../../new"),
)


@pytest.mark.parametrize("place", ORDINARY)
@pytest.mark.parametrize("writer", FILES, ids=str)
def test_files_go_to_ordinary_places(own: Path, writer: Writer, place: str) -> None:
    """Beside a log dir as well, and where names only look like Kafka's."""
    path = f"{own}/{place}"
    done = writer.run(own, path)
    assert done.exit_code in (0, 4), done
    assert os.path.getsize(path) > 0 or writer.is_idle


@pytest.mark.parametrize("place", [place for place in ORDINARY if "/" not in place or "-" in place or ".." in place])
@pytest.mark.parametrize("writer", DIRECTORIES, ids=str)
def test_directories_are_made_in_ordinary_places(own: Path, writer: Writer, place: str) -> None:
    if writer.command == "undo":
        copy_into(Path("crash/torn-in-batch"), own / "repaired")
        assert run_klog("recover", own / "repaired", "--apply", "--backup", own / "kept").exit_code == 1
    path = f"{own}/{place}"
    done = writer.run(own, path)
    assert done.exit_code in (0, 1, 4), done
    assert os.path.isdir(path) or "--apply" not in writer.words or writer.command == "undo" or writer.is_idle


@pytest.mark.parametrize("writer", FILES, ids=str)
def test_ordinary_files_are_written_over_as_ever(own: Path, writer: Writer) -> None:
    """Also one whose name is a link, or a second name of a segment: the new file takes the name, and only the name."""
    segment = own / "data/torn-0" / SEGMENT
    content = segment.read_bytes()
    os.link(segment, own / "plain/second")
    (own / "plain/old").write_bytes(b"old")
    (own / "plain/link").symlink_to("old")
    (own / "app/my-data-1/app.log").write_bytes(b"old")
    for place in ("exports/orders-3/old.jsonl", "app/my-data-1/app.log", "plain/link", "plain/second", "plain/old"):
        done = writer.run(own, own / place)
        assert done.exit_code in (0, 4), done
        assert (own / place).read_bytes() != b"old"
    assert segment.read_bytes() == content


def test_what_stands_behind_a_link_and_dots_is_where_the_system_says(klog: Klog, own: Path) -> None:
    """`data/hop/../new` is beside what hop leads to, not in the log dir: the text would have it there."""
    (own / "far/away").mkdir(parents=True)
    (own / "data/hop").symlink_to("../far/away")
    names = set(os.listdir(own / "data"))
    assert klog("dump", own / "data/torn-0", "--to", own / "data/hop/../dumped").exit_code == 4
    keys = own / "data/keys-none-0"
    assert klog("compact", keys, "--policy", "compact", "--to", f"{own}/data/hop/../copied").exit_code == 0
    assert klog("compact", keys, "--policy", "compact", "--save-plan", f"{own}/data/hop/../plan.json").exit_code == 0
    assert klog("apply", f"{own}/data/hop/../plan.json").exit_code == 0
    with lock_target(f"{own}/data/hop/../job", HastyDisk()):
        assert JobOutput(f"{own}/data/hop/../job", {}, HastyDisk()).to == str(own / "far/job")
    assert klog("truncate", keys, "--to-offset", "5", "--apply", "--backup", f"{own}/data/hop/../kept").exit_code == 0
    more = {name for name in os.listdir(own / "data") if not name.endswith(".klog-backup")}
    assert more - names <= {"cleaner-offset-checkpoint"}
    expected = {"away", "copied", "dumped", "job", "kept", "plan.json", "plan.json.staged"}
    assert set(os.listdir(own / "far")) == expected
    assert klog("undo", own / "far/kept", "--apply").exit_code == 0


def test_a_log_dir_behind_a_link_and_dots_is_the_one_that_is_repaired(klog: Klog, own: Path) -> None:
    """The log dir that is read is the one that is changed: the text of the path names another one."""
    (own / "far/away").mkdir(parents=True)
    copy_into(Path("crash/torn-in-batch"), own / "far/data")
    (own / "hop").symlink_to("far/away")
    before = whole(own / "data")
    assert klog("recover", f"{own}/hop/../data", "--apply").exit_code == 1
    assert whole(own / "data") == before
    assert (own / "far/data/torn-0" / SEGMENT).stat().st_size == 8091
