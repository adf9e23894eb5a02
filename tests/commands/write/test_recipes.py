"""The recipes of docs/write.md, run unchanged; `orders` is a topic of the corpus, /var/lib/kafka a log dir."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.write.sources import SOURCE, TARGETS, lines
from tests.conftest import ROOT, Ran, run_klog, writable_copy

pytestmark = [pytest.mark.corpora, pytest.mark.usefixtures("state_home")]
Klog = Callable[..., Ran]
TOPIC = "order.idem"


@pytest.fixture
def place(image: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a backup, the data of a cluster, a stopped broker's log dir, and the script of the page."""
    source = image(SOURCE) / "data"
    for name in ("backup", "data"):
        for number in range(2):
            writable_copy(source / f"{TOPIC}-{number}", tmp_path / name / f"{TOPIC}-{number}")
    writable_copy(image(TARGETS["4.3.1"]) / "data", tmp_path / "kafka")
    (tmp_path / "correct.py").write_text(re.findall(r"```python\n(.*?)```", page(), re.DOTALL)[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page() -> str:
    """Return the recipes."""
    return (ROOT / "docs/write.md").read_text(encoding="utf-8").partition("## Recipes")[2]


def recipe(title: str) -> list[list[str]]:
    """Return the words of each command of a recipe, by how its text begins."""
    text = page().partition(f"\n{title}")[2].partition("\n\n")[2].partition("\n\n")[0]
    commands = text.replace("orders-", f"{TOPIC}-").replace("/var/lib/kafka", "kafka").splitlines()
    assert commands, title
    return [shlex.split(one, comments=True) for one in commands]


def follow(title: str) -> list[Ran]:
    """Run a recipe; each of its commands succeeds."""
    done = []
    for program, *words in recipe(title):
        if program == "python":
            subprocess.run([sys.executable, *words], check=True, timeout=60)
            continue
        assert program == "klog"
        done.append(run_klog(*words))
        assert done[-1].exit_code == 0, (words, done[-1].stderr)
    return done


def content(klog: Klog, folder: Path) -> list[dict[str, Any]]:
    """Return the records of the topic, without a broker's own facts about them."""
    own = ("position", "leader_epoch", "producer_id")
    found = lines(klog, [folder], "--topic", TOPIC)
    return [{name: value for name, value in one.items() if name not in own} for one in found]


def test_one_topic_is_restored_into_a_stopped_cluster(klog: Klog, place: Path) -> None:
    """As records: shown, then done; and the same as batches."""
    before = content(klog, place / "backup")
    original = writable_copy(place / "kafka", place / "original")
    _, shown, applied = follow("Restore one topic")
    said = re.findall(r"```text\n(.*?)```", page(), re.DOTALL)[0]
    said = said.replace("orders", TOPIC).replace("/var/lib/kafka", "kafka")
    *done, unchanged, command = said.replace(f"{TOPIC}.jsonl", "orders.jsonl").splitlines()
    assert shown.stdout.decode().splitlines() == [*done, unchanged, command]
    lines = applied.stdout.decode().splitlines()
    assert lines[: len(done)] == [done[0].replace("would write", "wrote"), *done[1:]]
    assert lines[-2].startswith("next: start the broker")
    assert content(klog, place / "kafka") == before
    shutil.rmtree(place / "kafka")
    original.rename(place / "kafka")
    follow("The same without decoding records")
    assert content(klog, place / "kafka") == before
    assert klog("verify", "--deep", place / "kafka").exit_code == 0


def test_ten_records_are_corrected_in_parquet_and_put_back(klog: Klog, place: Path) -> None:
    """Into a log dir of their own, and from there into the broker's; all others are the same, in the same batches."""
    before = lines(klog, [place / "data" / f"{TOPIC}-0"])
    follow("Correct records in Parquet")
    after = lines(klog, [place / "corrected" / f"{TOPIC}-0"])
    changed = [
        one["offset"]
        for one, other in zip(before, after, strict=True)
        if one | {"position": 0} != other | {"position": 0}
    ]
    assert changed == list(range(20, 30))
    assert all(one["value"].startswith("corrected ") for one in after if one["offset"] in changed)
    sizes = [
        [(one["base_offset"], one["records"]) for one in lines(klog, [path / f"{TOPIC}-0"], "--batches")]
        for path in (place / "data", place / "corrected")
    ]
    assert sizes[0] == sizes[1]
    done = klog("write", place / "corrected" / f"{TOPIC}-0", "--to", place / "kafka", "--keep-offsets", "--apply")
    assert done.exit_code == 0, done.stderr
    assert content(klog, place / "kafka") == content(klog, place / "corrected")


def test_test_data_comes_from_anywhere(place: Path) -> None:
    """Through a pipe, to as many partitions as are wanted."""
    (echo, text, bar, *words) = recipe("Write test data of your own")[0]
    assert (echo, bar, words[0]) == ("echo", "|", "klog")
    command = [sys.executable, "-m", "klog_cli.app", *words[1:]]
    (place / "data").rename(place / "before")
    environment = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run(command, input=text, text=True, env=environment, check=True, capture_output=True, timeout=60)
    assert len(list((place / "data").glob("orders-*"))) == 12
    assert [one["key"] for one in lines(run_klog, [place / "data"])] == ["user-1"]
