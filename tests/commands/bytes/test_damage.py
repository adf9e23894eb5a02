"""Random damage: every byte is still covered, in bounded time, and the place that `klog verify` names is marked."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from pathlib import Path

import pytest
from klog.base.errors import KlogError
from klog.commands.bytes.byte_view import ByteChoice

from tests.commands.bytes.covering import Shown, fields_of, is_known, opened
from tests.conftest import FIXTURES, run_klog, writable_copy
from tests.support.damage import cases, sources

PLACES = (
    *(
        "modern/tx-0",
        "modern/zstd-0",
        "modern/lz4-broker-0",
        "modern/__consumer_offsets-1",
        "modern/__cluster_metadata-0",
    ),
    *("modern/__transaction_state-1", "modern/__share_group_state-1", "legacy/v0-gzip-0", "legacy/v1-snappy-0"),
    *("legacy/v1-none-0", "crash/torn-in-batch/torn-0"),
)
SECONDS = 20


def damaged(chance: random.Random, content: bytes) -> bytes:
    """Return *content* with one of the faults that disks and careless programs make."""
    made = bytearray(content)
    at = chance.randrange(len(made))
    kind = chance.randrange(6)
    if kind == 0:
        made[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del made[at:]
    elif kind == 2:
        made[at : at + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0"))
    elif kind == 3:
        made[at : at + chance.randrange(1, 600)] = chance.randbytes(chance.randrange(1, 600))
    elif kind == 4:
        made[at : at + 512] = bytes(min(512, len(made) - at))
    else:
        made[at:at] = chance.randbytes(chance.randrange(1, 40))
    return bytes(made)


FILES = [
    path
    for place in PLACES
    for path in sorted((FIXTURES / place).iterdir())
    if is_known(path) and 0 < path.stat().st_size < 40_000
]
FILES += [path for path in sorted((FIXTURES / "modern").iterdir()) if is_known(path) and path.stat().st_size]


def check(path: Path) -> list[Shown]:
    began = time.process_time()
    found = fields_of(path)
    assert b"".join(one.data for one in found if not one.inside) == path.read_bytes()
    assert time.process_time() - began < SECONDS
    return found


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed >= 20)) for seed in range(500)])
def test_every_byte_of_a_damaged_file_is_covered(seed: int, tmp_path: Path) -> None:
    """Twenty files a seed, of every kind, without the others that belong to them."""
    chance = random.Random(seed)
    for _ in range(20):
        original = chance.choice(FILES)
        path = tmp_path / original.parent.name / original.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(damaged(chance, original.read_bytes()))
        try:
            check(path)
        except KlogError as error:
            pytest.fail(f"{original}: {error}")


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed >= 10)) for seed in range(200)])
def test_the_place_that_verify_names_is_marked(seed: int, tmp_path: Path) -> None:
    """A batch, an entry, a snapshot: the part at the position of the finding has a problem, and nothing crashes."""
    for number, case in enumerate(cases(seed, sources(), 3)):
        root = tmp_path / str(number)
        case.make(root)
        found = json.loads(run_klog("verify", root, "--output", "json").stdout)["findings"]
        deep = json.loads(run_klog("verify", root, "--deep", "--output", "json").stdout)["findings"]
        found += [one for one in deep if one["id"] in ("bad-record", "bad-compression")]
        for path in sorted(root.glob("*/*")):
            if is_known(path):
                _compare(path, [one for one in found if one["file"] == str(path.relative_to(root))])


def _compare(path: Path, findings: list[dict[str, object]]) -> None:
    shown = check(path)
    for finding in findings:
        position = finding["position"]
        if not isinstance(position, int) or finding["severity"] == "note":
            continue
        parts = [one.field.part for one in shown if not one.inside and one.field.position <= position < one.field.end]
        if not parts:
            assert position >= path.stat().st_size, finding
            continue
        batch = _batch_of(shown, position)
        assert any(one.field.problem or one.field.wrong_bit for one in batch), (path, finding)


def _batch_of(shown: list[Shown], position: int) -> list[Shown]:
    """Return the fields from the one at *position* up to the next batch or entry, with those inside of them."""
    starts = [one.field.position for one in shown if not one.inside and _begins(one)]
    end = next((start for start in starts if start > position), 1 << 62)

    def is_here(one: Shown) -> bool:
        return position < one.field.end and one.field.position < end

    inside = {f"/{one.field.position}" for one in shown if not one.inside and is_here(one)}
    return [one for one in shown if (one.inside in inside if one.inside else is_here(one))]


def _begins(one: Shown) -> bool:
    return one.field.name in ("base_offset", "offset", "relative_offset", "timestamp", "version") and not (
        one.field.part.title.startswith("record")
    )


def test_a_flipped_bit_is_shown_at_its_byte(tmp_path: Path) -> None:
    """Any bit behind the checksum, of any format and codec."""
    chance = random.Random(5)
    for place in ("modern/plain-1", "modern/gzip-0", "legacy/v0-none-0", "legacy/v1-none-0"):
        folder = writable_copy(FIXTURES / place, tmp_path / place)
        log = min(path for path in folder.glob("*.log") if path.stat().st_size)
        content = bytearray(log.read_bytes())
        size = int.from_bytes(content[8:12], "big") + 12
        at, bit = chance.randrange(21, size), chance.randrange(8)
        content[at] ^= 1 << bit
        log.write_bytes(content)
        marked = [one.field for one in check(log) if one.field.wrong_bit is not None]
        assert [one.wrong_bit and one.wrong_bit.position for one in marked] == [at]
        assert f"bit {bit} differs: 0x{content[at] ^ 1 << bit:02x}" in (marked[0].wrong_bit or ("", ""))[1]


def test_a_flipped_bit_of_a_snapshot_is_shown_at_its_byte(tmp_path: Path) -> None:
    """Its checksum names the byte as well."""
    original = next(path for path in sorted((FIXTURES / "modern/tx-0").glob("*.snapshot")))
    path = tmp_path / original.name
    content = bytearray(original.read_bytes())
    content[20] ^= 4
    path.write_bytes(content)
    found = check(path)
    assert [one.field.wrong_bit[0] for one in found if one.field.wrong_bit] == [20]
    assert [one.field.name for one in found if one.field.problem] == ["crc"]


def test_a_hole_of_an_index_takes_no_time(tmp_path: Path) -> None:
    """Ten megabytes of zeros, in front of one entry, and a sparse file of a gigabyte."""
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(bytes(10 << 20) + b"\0\0\0\1\0\0\0\1")
    began = time.process_time()
    assert [one.field.size for one in check(path)] == [10 << 20, 4, 4]
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    with opened(path) as view:
        assert [field.size for field in view.fields()] == [10 << 20, 4, 4, (1 << 30) - (10 << 20) - 8]
    assert time.process_time() - began < SECONDS


def test_many_lines_take_little_memory(tmp_path: Path) -> None:
    """A line of fifty thousand is found without the others in memory."""
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(b"0\n50000\n" + b"t 0 0\n" * 50_000)
    tracemalloc.start()
    with opened(path, ByteChoice(entry=49_999)) as view:
        assert [field.name for field in view.fields()] == ["entry 49999"]
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
