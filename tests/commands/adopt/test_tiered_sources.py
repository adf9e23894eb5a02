"""Sources whose beginning is in remote storage: `klog adopt --remote` puts both tiers into the broker's partition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.adopt.disks import home
from tests.conftest import Ran, run_klog
from tests.support import tiers

TARGET = "gzip-broker-0"


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """The log dir and the tier of the fixture."""
    return tiers.unpack(tmp_path / "tiered")


def adopt(source: Path, data: Path, *more: object) -> Ran:
    words = ("adopt", source, "--as", TARGET, "--to", data, "--epochs", "rewrite", "--producers", "drop", "--apply")
    return run_klog(*words, "-o", "json", "--now=2026-11-23T12:00:00Z", *map(str, more))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_both_tiers_become_the_partition(tmp_path: Path, place: tuple[Path, Path]) -> None:
    """As if the partition had been fetched before."""
    (data, tier), back = place, tmp_path / "back"
    assert run_klog("remote", "fetch", data, "--remote", tier, "-t", "fine", "--to", back).exit_code == 0
    fetched, direct = home(tmp_path / "fetched"), home(tmp_path / "direct")
    assert adopt(back / "fine-0", fetched).exit_code == 0
    before = files(data / "fine-0")
    done = adopt(data / "fine-0", direct, "--remote", tier)
    assert done.exit_code == 0, done.stderr
    assert files(direct / TARGET) == files(fetched / TARGET)
    assert files(data / "fine-0") == before
    (adopted,) = json.loads(done.stdout)["adopted"]
    assert (adopted["log_start"], adopted["log_end"]) == (0, 110)
    assert run_klog("verify", direct / TARGET, "--deep").exit_code == 0


def test_a_plan_that_is_saved_needs_no_tier_later(tmp_path: Path, place: tuple[Path, Path]) -> None:
    (data, tier), broker, plan = place, home(tmp_path / "broker"), tmp_path / "plan.json"
    words = ("adopt", data / "fine-0", "--as", TARGET, "--to", broker, "--remote", tier, "--save-plan", plan)
    assert run_klog(*words).exit_code in (0, 4)
    tier.rename(tmp_path / "away")
    assert run_klog("apply", plan).exit_code == 0
    assert sum(path.stat().st_size for path in (broker / TARGET).glob("*.log")) > 2000


def test_without_the_tier_it_is_refused(tmp_path: Path, place: tuple[Path, Path]) -> None:
    done = adopt(place[0] / "fine-0", home(tmp_path / "broker"))
    assert done.exit_code == 8
    assert json.loads(done.stdout)["refused"][0]["id"] == "tiered"


@pytest.mark.parametrize("kind", ["log", "index", "timeindex"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_damaged_tier_is_refused(tmp_path: Path, place: tuple[Path, Path], kind: str, is_cut: bool) -> None:
    """A missing object, or one that is cut; what klog remote fetch brings back can be adopted."""
    data, tier = place
    broker = home(tmp_path / "broker")
    chosen = sorted(tier.glob(f"kafka-tiered-storage/fine-0-*/*.{kind}"))[2]
    if is_cut:
        chosen.write_bytes(chosen.read_bytes()[:-3] if kind == "log" else b"xyz")
    else:
        chosen.unlink()
    before = files(broker / "__cluster_metadata-0")
    done = adopt(data / "fine-0", broker, "--remote", tier)
    if kind == "log":
        assert done.exit_code == 8
        (refused,) = json.loads(done.stdout)["refused"]
        assert refused["id"] == "damaged"
        assert chosen.stem in refused["message"]
        assert not (broker / TARGET).exists()
    else:  # it is built from the log
        assert done.exit_code == 0, done.stderr
        assert run_klog("verify", broker / TARGET, "--deep").exit_code == 0
    assert files(broker / "__cluster_metadata-0") == before


def test_the_command_that_goes_on_names_the_tier(tmp_path: Path, place: tuple[Path, Path]) -> None:
    """It can be pasted as it is."""
    (data, tier), broker = place, home(tmp_path / "broker")
    refused = json.loads(adopt(data / "fine-0", broker, "--remote", tier).stdout)
    assert refused["refused"] == []
    words = ("adopt", data / "fine-0", "--as", TARGET, "--to", broker, "--remote", tier, "--remote-layout", "local")
    (one,) = json.loads(run_klog(*words, "--producers", "keep", "-o", "json").stdout)["refused"]
    assert f"--remote {tier} --remote-layout local" in one["next"]
    sorted(tier.glob("kafka-tiered-storage/fine-0-*/*.log"))[2].unlink()
    other = home(tmp_path / "other")
    (one,) = json.loads(adopt(data / "fine-0", other, "--remote", tier).stdout)["refused"]
    assert one["next"] == f"klog remote verify {data} --remote {tier}"
