"""The refusals of `klog adopt`, each with the next command; the other partitions of the same command are adopted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands.adopt.disks import NOW, adopted, foreign, home, records, refused
from tests.conftest import FIXTURES, Ran, writable_copy
from tests.support.power import tree

Klog = Callable[..., Ran]
UNIQUE = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return foreign(tmp_path / "other")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return home(tmp_path / "data")


def only(found: list[dict[str, str]], reason: str) -> dict[str, str]:
    """Return the one refusal, which is for that reason and leads on."""
    (one,) = found
    assert one["id"] == reason
    assert one["next"]
    return one


@contextmanager
def locked(log_dir: Path) -> Iterator[None]:
    """Let another process hold the lock of a log dir."""
    code = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(log_dir / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        assert holder.stdin is not None
        holder.stdin.close()


def test_a_topic_that_the_cluster_does_not_have(source: Path, data: Path) -> None:
    """The command makes it with as many partitions as the source's log dir shows."""
    for number in (0, 4):
        (source / f"dense-{number}").exists() or shutil.copytree(source / "plain-1", source / f"dense-{number}")
    for number in (0, 4):
        (source / f"dense-{number}").rename(source / f"gone-{number}")
    one = only(refused(source / "gone-0", "--to", data), "topic-unknown")
    assert "--create --topic gone --partitions 5 --replication-factor 1" in one["next"]


def test_a_deleted_topic_is_made_as_it_was(corpora_home: Path) -> None:
    """The metadata log still has its settings."""
    one = only(refused(corpora_home / "gone-0", "--to", corpora_home), "topic-unknown")
    assert one["next"].startswith("kafka-topics --bootstrap-server HOST:PORT --create --topic gone --partitions 2")


@pytest.fixture
def corpora_home(image: Callable[[str], Path], tmp_path: Path) -> Path:
    return writable_copy(image("answers/partitions-clean/before.tar.xz") / "data", tmp_path / "data")


test_a_deleted_topic_is_made_as_it_was = pytest.mark.corpora(test_a_deleted_topic_is_made_as_it_was)


def test_a_partition_that_the_topic_does_not_have(source: Path, data: Path) -> None:
    one = only(refused(source / "tx-0", "--as", "plain-7", "--to", data), "topic-unknown")
    assert one["next"].endswith("--alter --topic plain --partitions 8")


def test_a_partition_of_another_node_or_log_dir(source: Path, data: Path) -> None:
    """The broker would set it aside, or another log dir has to be given."""
    meta = data / "meta.properties"
    text = meta.read_text()
    meta.write_text(text.replace("node.id=1", "node.id=2"))
    assert "not-assigned" in only(refused(source / "tx-0", "--to", data), "not-assigned")["id"]
    meta.write_text(text.replace("directory.id=8", "directory.id=9"))
    one = only(refused(source / "tx-0", "--to", data), "not-assigned")
    assert "8CwsSo_skldJxjAIHdpDuw" in one["message"]
    assert one["next"].endswith("--to THAT_LOG_DIR")


def test_a_target_with_records(source: Path, tmp_path: Path) -> None:
    """Nothing is read or staged for it; --replace is named."""
    data = home(tmp_path / "home", "plain-1")
    before = tree(data)
    one = only(refused(source / "plain-2", "--as", "plain-1", "--to", data, "--apply"), "target-not-empty")
    assert "113 records" in one["message"]
    assert "--replace" in one["next"]
    assert tree(data) == before


def test_damage_in_the_middle(source: Path, data: Path, klog: Klog) -> None:
    """Intact batches follow: what becomes of them is for `klog recover` to ask."""
    log = source / "dense-0/00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[3000] ^= 0xFF
    log.write_bytes(content)
    one = only(refused(source / "dense-0", "--to", data), "damaged")
    assert "bad-crc" in one["message"]
    subprocess.run(one["next"].partition(" && klog")[0], shell=True, check=True, cwd=data.parent)
    copy = data.parent / "COPY/dense-0"
    assert f"klog recover COPY/{copy.name} --salvage --apply" in one["next"]
    assert klog("recover", copy, "--salvage", "--apply").exit_code in (1, 5)
    assert len(adopted(copy, "--to", data, "--apply")["adopted"]) == 1


def test_a_directory_without_segments(source: Path, data: Path) -> None:
    for file in (source / "plain-1").glob("0*"):
        file.unlink()
    only(refused(source / "plain-1", "--to", data), "damaged")


def test_what_is_in_remote_storage(source: Path, data: Path) -> None:
    """A line below the first segment is only there for logs whose beginning is elsewhere."""
    (source / "log-start-offset-checkpoint").write_text("0\n1\ndense 0 5\n")
    shutil.copytree(source / "dense-0", source / "dense-1")
    for file in (source / "dense-0").glob("00000000000000000000.*"):
        file.unlink()
    only(refused(source / "dense-0", "--to", data), "tiered")


def test_the_metadata_log(data: Path) -> None:
    only(refused(FIXTURES / "modern/__cluster_metadata-0", "--to", data), "cluster-metadata")


def test_coordinators_topics_of_another_cluster(source: Path, data: Path) -> None:
    """They fit only together, which the operator confirms by naming each."""
    one = only(refused(source / "__consumer_offsets-1", "--to", data), "internal-topic")
    assert "--as __consumer_offsets-1" in one["next"]
    words = (source / "__consumer_offsets-1", "--as", "__consumer_offsets-1", "--to", data)
    assert len(adopted(*words)["adopted"]) == 1


def test_rewritten_epochs_where_there_are_none(data: Path) -> None:
    one = only(
        refused(FIXTURES / "legacy/v1-none-0", "--as", "zstd-0", "--epochs", "rewrite", "--to", data),
        "format-too-old",
    )
    assert "--epochs keep" in one["next"]


def test_an_open_transaction_where_none_may_be_ended(source: Path, data: Path) -> None:
    one = only(
        refused(source / "tx-open-0", "--open-transactions", "refuse", "--to", data, "--apply"), "open-transaction"
    )
    assert "--open-transactions abort" in one["next"]
    assert not (data / "tx-open-0").exists()


def test_the_partition_itself(tmp_path: Path) -> None:
    data = home(tmp_path / "home", "plain-1")
    only(refused(data / "plain-1", "--to", data), "same-directory")


def test_two_sources_for_one_partition(tmp_path: Path) -> None:
    """Neither: klog cannot decide which one counts."""
    data = home(tmp_path / "home", "plain-1", "plain-2")
    for name, state in (("plain-1", "stray"), ("plain-2", "delete")):
        (data / name).rename(data / f"plain-1.{UNIQUE}-{state}")
    assert [one["id"] for one in refused(data, "--to", data)] == ["several-sources"] * 2


def test_a_source_that_a_broker_has(source: Path, data: Path) -> None:
    """It may be written any time: a copy is taken first."""
    with locked(source):
        assert only(refused(source / "tx-0", "--to", data), "lock-held")["next"].startswith("cp -a ")


def test_a_broker_on_the_target(source: Path, data: Path, klog: Klog) -> None:
    """Planned, with a note that it may be stale; nothing is applied."""
    with locked(data):
        planned = klog("adopt", source / "tx-0", "--to", data, NOW)
        assert planned.exit_code == 0
        assert b"may be stale" in planned.stderr
        assert klog("adopt", source / "tx-0", "--to", data, NOW, "--apply").exit_code == 8
    assert not (data / "tx-0").exists()


def test_others_are_adopted_all_the_same(source: Path, data: Path) -> None:
    """Exit code 4: planned or done for some."""
    found = refused(source / "tx-0", source / "__transaction_state-0", "--to", data, "--apply", code=4)
    assert [one["id"] for one in found] == ["internal-topic"]
    assert records(data / "tx-0") == records(source / "tx-0")


# what changes meanwhile


def test_a_source_that_changed_since_the_plan(source: Path, data: Path, tmp_path: Path, klog: Klog) -> None:
    """The plan applies to the former state."""
    plan, before = tmp_path / "plan.json", tree(data)
    adopted(source / "plain-1", "--to", data, "--save-plan", plan)
    log = source / "plain-1/00000000000000000000.log"
    log.write_bytes(log.read_bytes() + b"x")
    done = klog("apply", plan)
    assert done.exit_code == 8
    assert str(log).encode() in done.stderr
    assert tree(data) == before


def test_a_target_that_changed_since_the_plan(source: Path, tmp_path: Path, klog: Klog) -> None:
    """A broker that started in between may have written there."""
    data = home(tmp_path / "home", "empty-0")
    plan = tmp_path / "plan.json"
    adopted(source / "plain-1", "--as", "empty-0", "--to", data, "--save-plan", plan)
    shutil.copy(source / "plain-1/00000000000000000000.log", data / "empty-0/00000000000000000000.log")
    assert klog("apply", plan).exit_code == 8
    assert records(data / "empty-0") == records(source / "plain-1")


def test_a_source_that_changes_while_it_is_read(
    source: Path, data: Path, monkeypatch: pytest.MonkeyPatch, klog: Klog
) -> None:
    """Nothing is adopted of it."""
    from klog.commands.adopt import target_files

    real = target_files.TargetFiles._guard

    def guard(self: target_files.TargetFiles) -> None:
        real(self)
        os.utime(source / "plain-1/00000000000000000000.log", ns=(1, 1))

    monkeypatch.setattr(target_files.TargetFiles, "_guard", guard)
    done = klog("adopt", source / "plain-1", "--to", data, NOW, "--apply")
    assert done.exit_code == 8
    assert b"it has changed while it was read" in done.stdout
    assert not (data / "plain-1").exists()
    assert not list(data.parent.glob("klog-backup/*"))


# questions beyond a single source


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("{0}/other/tx-0", "--to", "{0}/other"), 8, b"no __cluster_metadata-0 here"),
        (("{0}/other/tx-0/00000000000000000000.log", "--to", "{0}/data"), 16, b"a file"),
        (("{0}/other/tx-0", "--to", "{0}/other/tx-0"), 16, b"expected a log dir of the broker"),
        (("{0}/other", "--as", "plain-1", "--to", "{0}/data"), 16, b"names one partition"),
        (("{0}/other/tx-0", "--as", "plain", "--to", "{0}/data"), 16, b"expected a topic and a partition number"),
        (("{0}/other", "--topic", "nothing", "--to", "{0}/data"), 16, b"no topic nothing"),
        (("{0}/nowhere", "--to", "{0}/data"), 16, b"No such file"),
        (("{0}/other/tx-0",), 16, b"--to"),
        (("{0}/other/tx-0", "--to", "{0}/data", "--epochs", "new"), 16, b"--epochs new"),
        (("{0}/other/tx-0", "--to", "{0}/data", "--producers", "shift"), 16, b"--producers shift"),
        (("{0}/other/tx-0", "--to", "{0}/data", "--open-transactions", "commit"), 16, b"--open-transactions commit"),
        (
            ("{0}/other/tx-0", "--to", "{0}/data", "--apply", "--save-plan", "{0}/p.json"),
            16,
            b"--apply and --save-plan",
        ),
    ],
)
def test_questions_that_make_no_sense(
    words: tuple[str, ...], code: int, said: bytes, source: Path, data: Path, tmp_path: Path, klog: Klog
) -> None:
    done = klog("adopt", *(word.format(tmp_path) for word in words))
    assert (done.exit_code, said in done.stderr) == (code, True), done.stderr


def test_a_checkpoint_that_a_broker_refuses(source: Path, data: Path, klog: Klog) -> None:
    """The log dir would go offline, with the adopted partitions."""
    (data / "recovery-point-offset-checkpoint").write_text("zeros")
    done = klog("adopt", source / "tx-0", "--to", data)
    assert done.exit_code in (8, 12)
    assert b"first: klog recover" in done.stderr


def test_a_name_that_needs_as(source: Path, data: Path, klog: Klog) -> None:
    (source / "tx-0").rename(source.parent / "loose")
    done = klog("adopt", source.parent / "loose", "--to", data)
    assert done.exit_code == 16
    assert b"--as TOPIC-N" in done.stderr


def test_several_replicas_are_said_once(source: Path, tmp_path: Path) -> None:
    """One disk alone loses: an empty copy may lead."""
    data = writable_copy(FIXTURES / "replicas/quorum/broker-1", tmp_path / "one")
    words = [str(source / "plain-1"), "--as", "orders21-0", "--to", str(data)]
    done = adopted(*words)
    assert done["adopted"][0]["replicas"] == [1, 2, 3]
    (note,) = [one for one in done["notes"] if "further replicas" in one]
    assert "nodes 1, 2, 3" in note
    assert "adopt the same on the disk of each" in note


def test_the_next_command_names_the_target_of_a_source_with_another_name(klog: Klog, tmp_path: Path) -> None:
    """With --replace alone the partition would be adopted under its own name, over another one's records."""
    data = writable_copy(FIXTURES / "modern", tmp_path / "data")
    for content, words in (("plain-1", ("--as", "plain-2")), ("plain-2", ())):
        source = writable_copy(FIXTURES / "modern" / content, tmp_path / content / "plain-1")
        done = klog("adopt", source, *words, "--to", data, "--output", "json")
        (refused,) = json.loads(done.stdout)["refused"]
        assert refused["id"] == "target-not-empty"
        assert refused["next"] == " ".join(["klog adopt", str(source), *words, "--to", str(data), "--replace"])


def test_a_copy_between_log_dirs_in_the_place_of_the_partition(source: Path, data: Path) -> None:
    """It becomes the partition at the next start, and a broker does not start with both; elsewhere it is no matter."""
    shutil.copytree(source / "plain-1", data / f"plain-1.{UNIQUE}-future")
    one = only(refused(source / "plain-1", "--to", data), "future-in-place")
    assert one["next"] == f"klog doctor {data}"
    assert not (data / "plain-1").exists()
    (data / f"plain-1.{UNIQUE}-future").rename(data / f"plain-2.{UNIQUE}-future")
    assert adopted(source / "plain-1", "--to", data)
