"""The estimates of a sample for keys, codecs and the cleaner are near the results of reading, recompressing and
cleaning all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from klog.commands.space.codec_and_key_samples import (
    FEWEST,
    STRETCH_BYTES,
    Sample,
    draw,
    estimate_codecs,
    estimate_ratio,
    find_frequent_keys,
)
from klog.commands.space.disk_usage import DiskUsage, SpaceSettings
from klog.commands.space.free_plan import CleanerGain, find_gains
from klog.data_dir.partition import Partition
from klog.data_dir.selection import PartitionQuery

from tests.commands.compact.oracle import CleanerOracle
from tests.conftest import run_klog, writable_copy

NOW = 1_760_000_000_000
RECORDS = 120_000
BATCH_BYTES = 4096
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}


def keys_of(random: Random, count: int) -> list[str]:
    """Keys as topics have them: a hot one, some frequent ones, and very many that are rare; later other ones."""
    names = []
    for at in range(count):
        draw_ = random.random()
        late = at > count // 2
        if draw_ < 0.12:
            names.append("hot")
        elif draw_ < 0.4:
            names.append(f"warm-{random.randrange(40) + 20 * late}")
        else:
            names.append(f"cold-{random.randrange(30_000) + 10_000 * late}")
    return names


def value_of(random: Random, at: int) -> str:
    words = ("paid", "shipped", "returned", "cancelled", "warehouse", "customer", "express", "standard")
    text = " ".join(random.choice(words) for _ in range(random.randrange(4, 30)))
    return json.dumps({"order": at, "token": random.getrandbits(64), "text": text})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[str]]:
    """A log dir with a topic of some 20 MB in segments of 1 MiB, and how often each key is there."""
    folder, random = tmp_path_factory.mktemp("what-if"), Random(7)
    names = keys_of(random, RECORDS)
    with (folder / "in.jsonl").open("w") as file:
        for at, key in enumerate(names):
            value = None if at % 97 == 0 else value_of(random, at)
            file.write(json.dumps({"key": key, "value": value, "timestamp": NOW - RECORDS + at}) + "\n")
    words = ("--topic", "t", "--batch-size", str(BATCH_BYTES), "--set", "segment.bytes=1048576", "--now", str(NOW))
    done = run_klog("write", folder / "in.jsonl", "--to", folder / "data", *words)
    assert done.exit_code == 0, done.stderr
    return folder / "data", Counter(names)


def partition(data: Path) -> Partition:
    return Partition(str(data / "t-0"))


def log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


# samples


def test_a_sample_is_spread_and_within_the_logs(made: tuple[Path, Counter[str]]) -> None:
    """No stretch twice, none beyond its log, from the first segment to the last."""
    sample = draw([partition(made[0])], 0.4)
    assert not sample.whole
    assert 0.35 < sample.fraction < 0.5
    paths = [one.path for one in sample.stretches]
    assert paths == sorted(paths)
    assert len(set(paths)) > 10
    for one in sample.stretches:
        assert 0 <= one.start < one.end <= Path(one.path).stat().st_size
    assert draw([partition(made[0])], 1.0).whole
    assert draw([], 0.5) == Sample([], 0, True)
    assert len(draw([partition(made[0])], 1e-9).stretches) * STRETCH_BYTES == FEWEST * STRETCH_BYTES


def test_an_estimate_tells_how_far_off_it_may_be() -> None:
    """Equal stretches leave no doubt, different ones do; all of them never."""
    assert estimate_ratio([(2, 4)] * 50, 0.1).ratio == 0.5
    doubt = estimate_ratio([(1, 4), (3, 4)] * 25, 0.1)
    assert doubt.ratio == 0.5
    assert doubt.low < 0.47 < 0.53 < doubt.high
    assert estimate_ratio([(1, 4), (3, 4)], 1.0).error == 0
    assert estimate_ratio([], 0.1).ratio == 0


# keys


def test_all_records_give_exact_keys(made: tuple[Path, Counter[str]]) -> None:
    """Also where there are more different keys than are counted at a time."""
    data, counts = made
    found = find_frequent_keys(partition(data), 10, 1.0)
    assert [(one.start.decode(), one.records) for one in found.keys] == sorted(
        ((key, counts[key]) for key, _ in counts.most_common(10)), key=lambda one: (-one[1], one[0])
    )
    assert all(one.error == 0 for one in found.keys)
    assert found.keys[0].share == pytest.approx(counts["hot"] / RECORDS)


def test_a_sample_gives_keys_within_its_bound(made: tuple[Path, Counter[str]]) -> None:
    """An operator acts on a hot key; a figure without a bound would be a guess."""
    data, counts = made
    found = find_frequent_keys(partition(data), 5, 0.3)
    assert 0.2 < found.sampled < 0.5
    assert found.keys[0].start == b"hot"
    for one in found.keys:
        share = counts[one.start.decode()] / RECORDS
        assert abs(one.share - share) <= 1.5 * one.error, one
        assert 0 < one.error < 0.05
        assert one.records == pytest.approx(counts[one.start.decode()], rel=0.35)


def test_keys_of_any_length_are_counted(tmp_path: Path) -> None:
    """Only the start of a long key is known; an empty one is a key, none is not."""
    lines = [{"key": key, "value": "v"} for key in ["x" * 400] * 5 + [""] * 3 + ["</script>"] * 2 + [None] * 9]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_klog("write", tmp_path / "in.jsonl", "--to", tmp_path / "data", "--topic", "t").exit_code == 0
    found = json.loads(
        run_klog("space", tmp_path / "data", "--top-keys", "9", "--output", "json", "--sample", "1").stdout
    )
    assert [(one["key"], one.get("length"), one["records"]) for one in found["keys"]] == [
        *(("x" * 128, 400, 5), ("", None, 3), ("</script>", None, 2))
    ]


# codecs


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_are_near_what_recompressing_all_gives(
    made: tuple[Path, Counter[str]], codec: str, tmp_path: Path
) -> None:
    """As they are, and in batches of 16 and 64 KiB, from a third of the log."""
    data, _ = made
    rows = estimate_codecs("t", [partition(data)], [codec], 0.3).rows
    assert [row.batch_bytes for row in rows] == [None, 16 << 10, 64 << 10]
    for row in rows:
        target = tmp_path / f"{codec}-{row.batch_bytes}"
        words = ("--to", target, "--topic", "t", "--codec", codec, "--batch-size", str(row.batch_bytes or BATCH_BYTES))
        done = run_klog("write", data.parent / "in.jsonl", *words, "--set", "segment.bytes=1048576")
        assert done.exit_code == 0, done.stderr
        real = log_bytes(target / "t-0")
        shutil.rmtree(target)
        assert row.bytes == pytest.approx(real, rel=0.10), row
        assert row.low <= row.bytes <= row.high
        assert row.sampled_bytes < 0.5 * log_bytes(data / "t-0")


# the cleaner


def gains(data: Path, fraction: float, settings: Mapping[str, str] = COMPACTED) -> list[CleanerGain]:
    usage = DiskUsage(PartitionQuery([str(data)]), SpaceSettings(settings, None, {}), NOW)
    return list(find_gains(usage, fraction))


@pytest.fixture(scope="module")
def cleaned(made: tuple[Path, Counter[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the log after Kafka's own cleaner."""
    data = writable_copy(made[0], tmp_path_factory.mktemp("cleaned") / "data")
    with CleanerOracle() as oracle:
        rounds = oracle.clean(data, now_ms=NOW, topic_settings={"t": COMPACTED})
    assert rounds
    assert not rounds[0].error
    return data


@pytest.mark.kafka
@pytest.mark.parametrize("fraction", [1.0, 0.3])
def test_what_the_cleaner_leaves_is_near_what_kafka_s_leaves(
    made: tuple[Path, Counter[str]], cleaned: Path, fraction: float
) -> None:
    """The figure decides whether compaction is worth a night."""
    (gain,) = gains(made[0], fraction)
    real = log_bytes(cleaned / "t-0")
    assert real < 0.6 * gain.bytes_before, "there is something to gain"
    assert gain.bytes_before == log_bytes(made[0] / "t-0")
    assert gain.bytes_after == pytest.approx(real, rel=0.001 if fraction == 1 else 0.10)
    assert gain.sampled == (1.0 if fraction == 1 else pytest.approx(fraction, abs=0.1))


@pytest.mark.kafka
def test_a_clean_log_promises_nothing(cleaned: Path) -> None:
    """A log that was cleaned a moment ago gains nothing by another cleaning."""
    (gain,) = gains(cleaned, 1.0)
    assert gain.bytes == 0


@pytest.mark.kafka
def test_a_map_that_is_full_costs_rounds_and_little_accuracy(
    made: tuple[Path, Counter[str]], cleaned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of a billion keys is still answered in bounded memory."""
    from klog.commands.space import free_plan

    monkeypatch.setattr(free_plan, "_MAP_BYTES", 24 * 12_000)
    (gain,) = gains(made[0], 1.0)
    assert gain.bytes_after == pytest.approx(log_bytes(cleaned / "t-0"), rel=0.10)


# the plan


def plan(data: Path, *words: object) -> tuple[Any, int]:
    ran = run_klog("space", data, "--output", "json", *map(str, words))
    return json.loads(ran.stdout), ran.exit_code


def test_the_plan_frees_what_nobody_needs_and_no_more(made: tuple[Path, Counter[str]], tmp_path: Path) -> None:
    """The cheapest first, a loss called a loss, and what retention keeps is kept."""
    data = writable_copy(made[0], tmp_path / "my data")
    unique = "0f8fad5bd9cb469fa16570867728950e"
    for state in ("delete", "stray"):
        shutil.copytree(data / "t-0", data / f"t-0.{unique}-{state}")
    (data / "t-0" / "00000000000000000000.log.deleted").write_bytes(b"x" * 100_000)
    now = ("--now", NOW)
    found, code = plan(data, "--free", "1T", *now)
    commands = [step.get("command", "") for step in found["plan"]]
    assert [command.split()[0] for command in commands] == ["find", "rm", "rm"]
    assert "stray" in commands[1]
    assert "loss" in found["plan"][1]["why"]
    assert code == 4
    assert found["missing"] > 0
    few, code = plan(data, "--free", "50K", *now)
    assert (len(few["plan"]), code, few["missing"]) == (1, 0, 0)
    due, _ = plan(data, "--free", "1T", "--now", NOW + 8 * 86_400_000)
    assert "start the broker" in due["plan"][-1]["manual"]
    freed = _disk_bytes(data)
    for command in commands:
        subprocess.run(["bash", "-c", command], check=True)
    assert freed - _disk_bytes(data) == sum(step["frees"] for step in found["plan"])
    assert (data / "t-0" / "00000000000000000000.log").exists()


def test_a_plan_is_all_that_is_printed_unless_a_table_is_requested(made: tuple[Path, Counter[str]]) -> None:
    """The operator of a full disk reads the steps first, and whether they are enough."""
    words = ("space", made[0], "--now", str(NOW + 8 * 86_400_000), "--free")
    lines = run_klog(*words, "1").stdout.decode().splitlines()
    assert lines[0] == "To free 1 B:"
    assert re.fullmatch(r"  1  frees \d+\.\d MiB: retention deletes .*", lines[1])
    assert lines[2] == f"       start the broker on {made[0]}"
    assert re.fullmatch(r"       \d+\.\d MiB in files, which take \d+\.\d MiB on the disk", lines[3])
    assert re.fullmatch(r"enough: that frees \d+\.\d MiB", lines[4])
    assert len(lines) == 5
    both = run_klog(*words, "1T", "--by", "topic").stdout.decode()
    assert both.startswith("To free 1.0 TiB:\n")
    assert "\nnot enough: 1024.0 GiB cannot be freed" in both
    assert "\nthe disk of " in both


def _disk_bytes(data: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in data.rglob("*") if path.is_file())


def test_options_that_cannot_be_are_refused(made: tuple[Path, Counter[str]]) -> None:
    """The expected result."""
    for words in (["--sample", "2"], ["--sample", "x"], ["--codecs", "brotli"], ["--free", "x"]):
        assert run_klog("space", made[0], *words).exit_code == 16, words
    assert run_klog("space", made[0], "--output", "csv", "--top-keys", "3").exit_code == 16
