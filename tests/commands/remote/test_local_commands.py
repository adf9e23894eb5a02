"""`klog verify` and `klog space` with `--remote`: what they find in remote storage, behind or beside the log dirs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.support.tiers import situation, unpack

Klog = Callable[..., Ran]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return unpack(tmp_path_factory.mktemp("tiered"))


def document(ran: Ran) -> Any:
    return json.loads(ran.stdout)


def test_verify_has_the_findings_of_remote_storage_behind_its_own(klog: Klog, disk: tuple[Path, Path]) -> None:
    """Those of `klog remote verify`, in each form; the exit code is that of both."""
    data, tier = disk
    alone, remote = document(klog("verify", data, "-o", "json")), klog("remote", "verify", data, "--remote", tier)
    rows = document(klog("remote", "verify", data, "--remote", tier, "-o", "json"))["findings"]
    assert {row["id"] for row in rows} == {"remote-orphan"}
    ran = klog("verify", data, "--remote", tier, "-o", "json")
    both = document(ran)
    assert ran.exit_code == 4
    assert {name: both[name] for name in alone if name != "findings"} == {
        name: alone[name] for name in alone if name != "findings"
    }
    count = len(alone["findings"])
    assert [
        {name: value for name, value in one.items() if name not in ("tier", "segment_id")}
        for one in both["findings"][:count]
    ] == alone["findings"]
    assert [{name: one[name] for name in rows[0]} for one in both["findings"][count:]] == rows
    assert both["remote"]["segments"] > 0
    text = klog("verify", data, "--remote", tier).stdout.decode()
    assert text.endswith(remote.stdout.decode())
    assert text.startswith(klog("verify", data).stdout.decode())
    lines = klog("verify", data, "--remote", tier, "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines][count:] == [row["id"] for row in rows]
    table = list(csv.DictReader(io.StringIO(klog("verify", data, "--remote", tier, "-o", "csv").stdout.decode())))
    assert [row["tier"] for row in table] == ["local"] * count + ["remote"] * len(rows)
    metrics = klog("verify", data, "--remote", tier, "-o", "prometheus").stdout.decode()
    assert f'klog_findings{{id="remote-orphan",severity="warning"}} {len(rows)}' in metrics


def test_verify_without_remote_is_as_before(klog: Klog, disk: tuple[Path, Path]) -> None:
    found = document(klog("verify", disk[0], "-o", "json"))
    assert "remote" not in found
    assert not any("tier" in one for one in found["findings"])
    assert klog("verify", disk[0], "--remote-layout", "local").exit_code == 16
    for command in ("verify", "space"):
        ran = klog(command, disk[0] / "fine-0", "--remote", disk[1])
        assert (ran.exit_code, ran.stdout) == (16, b""), "a partition alone has no entries"


@pytest.mark.corpora
def test_verify_narrows_both(klog: Klog, image: Callable[[str], Path]) -> None:
    found = situation(image, "damaged")
    ran = klog("verify", found.leader, "--remote", found.tier, "-t", "d-log-cut", "-o", "json")
    assert ran.exit_code == 4
    assert {(one["topic"], one["tier"]) for one in document(ran)["findings"]} == {("d-log-cut", "remote")}


def test_space_adds_up_the_objects(klog: Klog, disk: tuple[Path, Path]) -> None:
    """Each segment counts for its role; the objects of a deleted topic are orphans."""
    data, tier = disk
    sizes = {one.name: one.stat().st_size for one in tier.rglob("*") if one.is_file()}
    found = document(klog("space", data, "--remote", tier, "-o", "json"))
    rows = {one["topic"]: one for one in found["remote"]}
    assert sum(one["bytes"] for one in rows.values()) == sum(sizes.values())
    assert set(rows["gone"]["reasons"]) == {"orphan"}
    assert set(rows["fine"]["reasons"]) == {"serves"}
    assert set(rows["short"]["reasons"]) == {"serves", "orphan"}
    topics = {one["topic"]: one.get("remote_bytes") for one in found["topics"]}
    assert topics["fine"] == rows["fine"]["bytes"]
    assert "remote" not in document(klog("space", data, "-o", "json"))
    (line,) = klog(
        "space", data, "--remote", tier, "-t", "fine", "-o", "jsonl", "--by", "partition"
    ).stdout.splitlines()
    assert json.loads(line)["remote_bytes"] == rows["fine"]["bytes"]
    text = klog("space", data, "--remote", tier).stdout.decode()
    assert "in remote storage" in text
    assert "without an owner" in text


def test_a_report_has_a_verdict_and_findings(klog: Klog, disk: tuple[Path, Path], tmp_path: Path) -> None:
    """To give away, it names neither keys nor segments."""
    data, tier = disk
    page = tmp_path / "report.html"
    assert klog("report", data, "--to", page).exit_code == 0
    assert "Remote storage" not in page.read_text()
    assert klog("report", data, "--remote", tier, "--to", page).exit_code == 4
    text = page.read_text()
    assert "not damaged, 11 warnings" in text
    assert "remote-orphan" in text
    key = next(tier.rglob("gone-0-*/*.log"))
    assert key.stem in text
    assert klog("report", data, "--remote", tier, "--redact", "--to", page).exit_code == 4
    redacted = page.read_text()
    assert "remote-orphan" in redacted
    assert not any(word in redacted for word in (key.stem, key.parent.name, "kafka-tiered-storage", str(tier)))


@pytest.mark.corpora
def test_space_shows_what_retention_bytes_counts(klog: Klog, image: Callable[[str], Path]) -> None:
    """The leader deletes from the front as long as a whole segment is covered by what is above the limit."""
    found = situation(image, "house")
    rows = {
        one["topic"]: one
        for one in document(klog("space", found.leader, "--remote", found.tier, "-o", "json"))["remote"]
    }
    assert rows["size"]["retention_bytes"] == 6000
    first = min(
        (one for one in found.truth["segments"]["before"] if one["topic"] == "size"),
        key=lambda one: one["start_offset"],
    )
    finished = sum(one["size"] for one in found.truth["segments"]["before"] if one["topic"] == "size")
    active = sum(one.stat().st_size for one in (found.leader / "size-0").glob("*.log"))
    assert rows["size"]["counted_bytes"] == finished + active
    assert rows["size"]["counted_bytes"] - 6000 < first["size"], "or its first segment would be gone"
    assert (rows["plain"]["counted_bytes"], rows["plain"]["retention_bytes"]) == (None, None)
