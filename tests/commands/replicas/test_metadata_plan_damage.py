"""Whatever bytes a metadata log has, a plan is made or refused: no traceback, and nothing is touched."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.formats.batch import CONTROL_BIT, BatchHead, write_batch
from klog.formats.control import kraft_control
from klog.formats.internal_topics import metadata_value, new_metadata_record
from klog.formats.record import write_record
from klog.formats.structs.schema import UNKNOWN_TAGS, load, names_by_key
from klog.kernel import crc32c

from tests.commands.replicas.test_copy_plan import trees
from tests.commands.replicas.test_metadata_plan import ADDRESSES, disks
from tests.conftest import FIXTURES, writable_copy
from tests.formats import struct_writer

pytestmark = [pytest.mark.usefixtures("hasty")]
CASES = 25
RECORDS = [name for names in names_by_key("metadata").values() for name in names]


@pytest.fixture
def quorum(tmp_path: Path) -> Path:
    writable_copy(FIXTURES / "replicas" / "quorum", tmp_path / "disks")
    return tmp_path / "disks"


def survives(klog: Callable[..., Any], root: Path) -> set[int]:
    """Plan in both ways; return the exit codes."""
    before, codes = trees(root), set()
    for words in (("--voters", ADDRESSES), ("--only-broker", "1")):
        ran = klog("metadata", "plan", *disks(root), *words, "--output", "json")
        assert ran.exit_code in (0, 4, 8, 12, 16), ran
        assert b"Traceback" not in ran.stderr
        codes.add(ran.exit_code)
    assert trees(root) == before
    return codes


def test_damaged_files(klog: Callable[..., Any], quorum: Path) -> None:
    """Logs, snapshots, epochs, quorum-state, meta.properties: one of them, on one disk, anywhere."""
    files = sorted(path for path in quorum.rglob("*") if path.is_file() and path.suffix not in (".index", ".timeindex"))
    codes = set()
    for number in range(CASES):
        chance = random.Random(number)
        path = chance.choice(files)
        content = path.read_bytes()
        path.write_bytes(struct_writer.damaged(content, chance))
        codes |= survives(klog, quorum)
        path.write_bytes(content)
    assert 8 in codes


@pytest.mark.parametrize("is_newest", [True, False])
def test_a_node_that_stops_on_its_snapshot_is_named(klog: Callable[..., Any], quorum: Path, is_newest: bool) -> None:
    """The plan writes its log, and it does not start; it reads no older snapshot."""
    *older, newest = sorted((quorum / "broker-1" / "__cluster_metadata-0").glob("*.checkpoint"))
    for path in [newest] if is_newest else older:
        path.write_bytes(b"")
    ran = klog("metadata", "plan", *disks(quorum), "--voters", ADDRESSES)
    assert ran.exit_code == 0, ran
    said = b"node 1 stops on its newest snapshot, which the plan does not change: klog doctor"
    assert (said in ran.stdout + ran.stderr) == is_newest


def test_batches_that_are_sound_and_say_anything(klog: Callable[..., Any], quorum: Path) -> None:
    """With checksums that match: records of every type at random, right and slightly wrong, voters among them."""
    logs = [max((disk / "__cluster_metadata-0").glob("*.log")) for disk in disks(quorum)]
    ends = [log.read_bytes() for log in logs]
    codes = set()
    for number in range(CASES):
        chance = random.Random(number)
        is_control = chance.random() < 0.4
        if is_control:
            type_id, name = chance.choice(((5, "KRaftVersionRecord"), (6, "VotersRecord")))
            data = struct_writer.made_up_struct(load("control", name).struct, 0, chance)
            key, value = kraft_control(type_id, data | {"version": 0})
        else:
            name = chance.choice(RECORDS)
            schema = load("metadata", name)
            version = chance.randint(schema.lowest, schema.highest)
            data = struct_writer.made_up_struct(schema.struct, version, chance)
            key, value = None, metadata_value(new_metadata_record(name, version, {**data, UNKNOWN_TAGS: []}))
        if chance.random() < 0.4:
            value = struct_writer.damaged(value, chance)
        head = BatchHead(117, 6, CONTROL_BIT if is_control else 0, 0, 1, 1, 1)
        for log, content in zip(logs, ends, strict=True):
            log.write_bytes(content + write_batch(head, write_record(0, 0, key, value), crc32c))
        codes |= survives(klog, quorum)
    assert codes & {0, 4}


def flipped_base_offset(disk: Path) -> None:
    """Flip a bit of the first batch's offset, which no checksum covers, so that it does not fit its segment."""
    log = max((disk / "__cluster_metadata-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    second = 12 + int.from_bytes(content[8:12], "big")
    content[second] ^= 0x40
    log.write_bytes(content)


def test_a_log_that_a_node_refuses_is_named_with_a_way_out(klog: Callable[..., Any], quorum: Path) -> None:
    """A flipped header field outside of the checksum: the disk can be left out, and the plan is made of the others."""
    one, *others = disks(quorum)
    flipped_base_offset(one)
    before = trees(quorum)
    for words in (("--voters", ADDRESSES), ("--only-broker", "1")):
        ran = klog("metadata", "plan", *disks(quorum), *words)
        assert ran.exit_code == 8
        said = ran.stderr.decode()
        assert f"{one}/__cluster_metadata-0: a node refuses this metadata log" in said
        assert "leave this disk out where others have the log, and move the directory out of it" in said
    assert trees(quorum) == before
    assert klog("metadata", "plan", *others, "--only-broker", "2").exit_code in (0, 4)
