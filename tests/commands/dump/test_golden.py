"""`klog dump` against the output of Kafka 4.3.1's own tool for the fixtures: runs from a clone alone, without Java."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.kafka import Dumped
from tests.conftest import FIXTURES, Ran
from tests.oracles.dump_compare import difference
from tests.support import goldens

GOLDEN = FIXTURES / "golden"
FLAG_SETS = sorted(path.stem for path in GOLDEN.glob("*.gz"))


def golden(name: str) -> dict[str, Dumped]:
    """Return Kafka's output with the flag set *name*, with this clone's place in its reports."""
    here = f"{FIXTURES}/".encode()
    return {
        file: Dumped(said.stdout, said.stderr.replace(b"{root}/", here), said.exit_code, said.died)
        for file, said in goldens.read(GOLDEN / f"{name}.gz")
    }


def test_the_goldens_cover_every_fixture() -> None:
    """A fixture without a golden would be compared with nothing."""
    files = {str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*") if path.is_file()}
    wanted = {file for file in files if "/" in file and not file.startswith(("golden/", "replicas/"))}
    answered: dict[str, set[str]] = {file: set() for file in wanted}
    for name in FLAG_SETS:
        for file in golden(name):
            answered[file].add(name)
    assert len(wanted) > 300
    assert {file: set(goldens.flag_sets(file)) for file in wanted} == answered


@pytest.mark.parametrize("name", FLAG_SETS)
def test_dump_prints_what_kafkas_tool_prints(
    name: str, klog: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, stdout and stderr, for every fixture under every set of flags."""
    monkeypatch.chdir(FIXTURES)
    answers = golden(name)
    assert len(answers) > 10
    differences = []
    for file, said in answers.items():
        flags = goldens.flag_sets(file)[name]
        found = difference(said, klog("dump", "--files", file, *flags))
        if found:
            differences.append(f"{file} {' '.join(flags)}\n  {found}")
    assert not differences, f"{len(differences)} of {len(answers)} files differ:\n" + "\n".join(differences[:10])


def test_plain_arguments_and_files_option_say_the_same(
    klog: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators type paths; only the drop-in spells --files."""
    monkeypatch.chdir(FIXTURES)
    files = [f"modern/plain-{n}/00000000000000000000.log" for n in (1, 2)]
    assert klog("dump", *files) == klog("dump", "--files", ",".join(files))


def test_several_files_are_dumped_in_the_order_given(klog: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the tool does: each file's output whole, one after the other."""
    monkeypatch.chdir(FIXTURES)
    answers = golden("deep")
    files = ["modern/tx-0/00000000000000000016.log", "legacy/v1-gzip-0/00000000000000000000.log"]
    ran = klog("dump", "--deep-iteration", "--files", ",".join(files))
    assert ran.stdout == b"".join(answers[file].stdout for file in files)
    assert ran.exit_code == 0


def test_a_real_process_prints_the_same_bytes(klog_process: Callable[..., Ran]) -> None:
    """Pipes, buffers and encodings are the process's own; keys and values here are binary."""
    file = "modern/plain-1/00000000000000000000.log"
    said = golden("print")[file]
    ran = klog_process("dump", file, "--print-data-log", cwd=FIXTURES)
    assert not difference(said, ran)


BATCH_FIELDS = (
    "baseOffset lastOffset count baseSequence lastSequence producerId producerEpoch partitionLeaderEpoch"
    " isTransactional isControl deleteHorizonMs position CreateTime size magic compresscodec crc isvalid"
)


def test_a_dump_names_every_field_of_a_batch_and_the_payload(klog: Callable[..., Ran]) -> None:
    """The worked example: an operator reads sequences, epochs, position and CRC of each batch off its line."""
    log = FIXTURES / "modern/idempotent-0/00000000000000000000.log"
    lines = klog("dump", log, "--print-data-log").stdout.decode().splitlines()
    batches = [line for line in lines if line.startswith("baseOffset: ")]
    assert lines[:2] == [f"Dumping {log}", "Log starting offset: 0"]
    assert [re.findall(r"(\w+): ", line) for line in batches] == [BATCH_FIELDS.split()] * len(batches)
    sizes = [int(line.split(" size: ")[1].split()[0]) for line in batches]
    positions = [int(line.split(" position: ")[1].split()[0]) for line in batches]
    assert positions == [sum(sizes[:n]) for n in range(len(sizes))]
    assert sum(sizes) == log.stat().st_size
    records = [line for line in lines if line.startswith("| offset: ")]
    assert [int(line.split()[2]) for line in records] == list(range(110))
    assert records[7].endswith(
        ' keySize: 5 valueSize: 92 sequence: 7 headerKeys: [] key: key-7 payload: {"number":7,"text":"'
        + "abcdefghij" * 7
        + '"}'
    )


def test_no_file_beside_the_dumped_one_is_created_or_touched(klog: Callable[..., Ran], tmp_path: Path) -> None:
    """Kafka's tool creates an index that is missing and trims a ragged one; a reading command must not."""
    log = "00000000000000000000.log"
    (tmp_path / log).write_bytes((FIXTURES / "modern/plain-1" / log).read_bytes())
    (tmp_path / "00000000000000000000.timeindex").write_bytes(bytes(12))
    (tmp_path / "00000000000000000007.index").write_bytes(bytes(13))
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    for name in (log, "00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000007.index"):
        klog("dump", tmp_path / name)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()} == before
