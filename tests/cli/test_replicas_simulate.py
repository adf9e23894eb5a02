"""`klog replicas simulate` as operators meet it: a table that fits the screen, JSON lines, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES, Ran
from tests.support.terminal import on_screen

Klog = Callable[..., Ran]
FOLDER = FIXTURES / "replicas" / "simulate"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.fixture
def table(klog: Klog, tmp_path: Path) -> Callable[[dict[str, Any]], str]:
    """A function that plays a scenario and returns the text, without line breaks in the sentences."""

    def play(scenario: dict[str, Any]) -> str:
        file = tmp_path / "events.json"
        file.write_text(json.dumps(scenario))
        done = klog("replicas", "simulate", file)
        assert (done.stderr, done.exit_code) in ((b"", 0), (b"", 4))
        text = done.stdout.decode()
        return " ".join(text.split())

    return play


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_are_the_rows_and_the_code_says_whether_anything_broke(klog: Klog, name: str) -> None:
    done = klog("replicas", "simulate", FOLDER / f"{name}.json", "--output", "jsonl")
    wanted = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines()]
    assert [json.loads(line) for line in done.stdout.splitlines()] == wanted
    assert (done.exit_code, done.stderr) == (4 if name == "loss-high-watermark" else 0, b"")


@pytest.mark.parametrize("name", NAMES)
def test_the_table_has_each_step_and_fits_the_screen(klog: Klog, name: str) -> None:
    lines = klog("replicas", "simulate", FOLDER / f"{name}.json").stdout.decode().splitlines()
    steps = [line.split()[0] for line in lines[5:] if line[:4].strip().isdigit()]
    assert steps == [str(number + 1) for number in range(len(steps))]
    assert len(steps) == len((FOLDER / f"{name}.jsonl").read_bytes().splitlines())
    assert lines[0].endswith(".")
    for columns in (60, 80, 120):
        shown = on_screen("replicas", "simulate", FOLDER / f"{name}.json", columns=columns).plain.splitlines()
        assert max(map(len, shown)) <= columns
        assert " ".join(shown).split() == " ".join(lines).split()


def test_a_scenario_comes_from_stdin(klog_process: Klog) -> None:
    done = klog_process("replicas", "simulate", "-", stdin=(FOLDER / "loss-epoch.json").read_bytes())
    assert done.exit_code == 0
    assert b"Nothing is lost of 1 append that acks=all acknowledged." in done.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"replicas": [1], "events": [{"do": "fetch", "nod": 1}]}', 'events[0] has a member "nod"'),
        (b"nothing", "no JSON: Expecting value"),
        (b" " * (1 << 21), "larger than 1048576 bytes"),
    ],
)
def test_what_is_not_understood_is_one_line_and_16(klog: Klog, tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "events.json"
    file.write_bytes(content)
    done = klog("replicas", "simulate", file)
    assert (done.exit_code, done.stdout, done.stderr.count(b"\n")) == (16, b"", 1)
    assert done.stderr.startswith(f"klog: {file}: ".encode())
    assert said in done.stderr.decode()


@pytest.mark.parametrize(("name", "said"), [("none", "no such file"), (".", "a directory")])
def test_a_path_of_the_wrong_kind_is_16_with_what_was_expected(
    klog: Klog, tmp_path: Path, name: str, said: str
) -> None:
    done = klog("replicas", "simulate", tmp_path / name)
    assert done.exit_code == 16
    assert done.stderr.decode().endswith(f": {said}: expected a file of events (docs/replicas.md), or - for stdin\n")


def test_a_wrong_form_is_16(klog: Klog) -> None:
    done = klog("replicas", "simulate", FOLDER / "quota.json", "--output", "jso")
    assert done.exit_code == 16
    assert b"did you mean json or jsonl?" in done.stderr


# the words


def test_losses_are_named_with_step_and_leader(klog: Klog) -> None:
    text = " ".join(klog("replicas", "simulate", FOLDER / "loss-high-watermark.json").stdout.decode().split())
    for said in (
        "1↓/1 *2/2 Node 1 restarts. Node 1 truncates to its high watermark 1.",
        "7 6 1/1 (2/2) Node 2, the leader, crashes.",
        "Node 1 is elected (from the ISR): epoch 1 begins at offset 1. The ISR is 1. BROKEN: it lacks the records of"
        " step 1, which were acknowledged.",
        "Node 1 answers node 2: OFFSET_OUT_OF_RANGE.",
        "-1↓/1↓ The answer reaches node 2. Node 2 truncates to the leader's log end 1.",
        "Broken: the record of step 1, acknowledged to acks=all, is missing since step 8, when node 1 was elected"
        " without it.",
    ):
        assert said in text


def test_rounds_of_truncation_are_explained(klog: Klog) -> None:
    text = " ".join(klog("replicas", "simulate", FOLDER / "interleaved-epoch.json").stdout.decode().split())
    assert (
        "Node 2 asks where epoch 3 ends: the leader has epoch 1 up to 15, node 2 has epoch 0 up to 12. Node 2 asks"
        " where epoch 0 ends: the leader has epoch 0 up to 10, node 2 has epoch 0 up to 12. Node 2 truncates to 10."
    ) in text
    text = " ".join(klog("replicas", "simulate", FOLDER / "interleaved-fetch.json").stdout.decode().split())
    assert "Node 1 answers node 2 that the logs diverge: its epoch 1 ends at 15." in text


def test_a_fork_that_stays_is_named_at_the_end(klog: Klog) -> None:
    """Nothing acknowledged to acks=all is broken, so the exit code is 0; but the logs are not the same."""
    text = klog("replicas", "simulate", FOLDER / "fork-high-watermark.json").stdout.decode()
    assert "The logs of nodes 1 and 2 differ from offset 1 on." in text
    text = klog("replicas", "simulate", FOLDER / "fork-epoch.json").stdout.decode()
    assert "differ" not in text


def test_the_isr_and_the_quota_are_explained(klog: Klog) -> None:
    text = " ".join(klog("replicas", "simulate", FOLDER / "isr-expand.json").stdout.decode().split())
    assert "Node 3 is to join the ISR once that is confirmed." in text
    assert "The high watermark rises to 105. Step 3 is acknowledged." in text
    assert "The controller confirms. The ISR is 1, 2 and 3." in text
    text = " ".join(klog("replicas", "simulate", FOLDER / "quota.json").stdout.decode().split())
    assert "Node 1 answers node 2: no records, for the quota is used up; high watermark 25." in text


def test_the_other_steps_have_words_too(table: Callable[[dict[str, Any]], str]) -> None:
    text = table(
        {
            "replicas": [1, 2, 3],
            "isr": [1, 2],
            "settings": {"min.insync.replicas": 2},
            "start": {
                "1": {"log": [[0, 4], [0, 2]], "log_start": 3, "high_watermark": 9},
                "3": {"log": [[0, 1]]},
            },
            "events": [
                {"at": 1, "do": "fetch", "node": 3},
                {"at": 2, "do": "response", "node": 3},
                {"at": 3, "do": "fetch", "node": 2},
                {"at": 4, "do": "lose", "node": 2},
                {"at": 50_000, "do": "isr-check"},
                {"do": "append", "records": 2, "acks": "all"},
                {"do": "append", "records": 2, "acks": 0},
                {"do": "wait"},
                {"do": "fetch", "node": 2},
                {"do": "response", "node": 2},
                {"do": "crash", "node": 1, "keep": 8, "high_watermark": 4},
                {"do": "restart", "node": 2},
                {"do": "restart", "node": 1},
                {"do": "elect", "leader": 3},
            ],
        }
    )
    for said in (
        "Node 1 answers node 3: OFFSET_OUT_OF_RANGE.",
        "Node 3 deletes its log and begins again at 3, where the leader's log begins.",
        "The answer to node 2 is lost.",
        "The leader looks for replicas that lag. The ISR is 1.",
        "Node 1 refuses 2 records with acks=all: NOT_ENOUGH_REPLICAS.",
        "Node 1 appends 2 records with acks=0, offsets 9–10.",
        "Time passes.",
        "Node 1, the leader, crashes. Its remaining log ends at 7. Its high watermark is 4.",
        "Nothing happens: 2 is up.",
        "Node 1 restarts. There is no leader to follow.",
        "Node 3 is elected (unclean, for it was outside the ISR): epoch 1 begins at offset 3.",
        "No append was acknowledged to acks=all.",
    ):
        assert said in text


def test_many_replicas_have_their_words_below(
    table: Callable[[dict[str, Any]], str], klog: Klog, tmp_path: Path
) -> None:
    """The columns leave no room beside them."""
    scenario = {"replicas": list(range(1, 17)), "events": [{"do": "append", "records": 3}]}
    assert "Node 1 appends 3 records with acks=1, offsets 0–2. Step 1 is acknowledged." in table(scenario)
    lines = klog("replicas", "simulate", tmp_path / "events.json").stdout.decode().splitlines()
    words = "Node 1 appends 3 records with acks=1, offsets 0–2. Step 1 is acknowledged."
    assert lines[-1].endswith(f"  {words}")
    shown = on_screen("replicas", "simulate", tmp_path / "events.json", columns=120).plain.splitlines()
    assert shown[-1] == f"    {words}"


def test_what_broke_and_was_mended_is_still_told(
    table: Callable[[dict[str, Any]], str], klog: Klog, tmp_path: Path
) -> None:
    events = [{"do": "append", "records": 2, "acks": "all"}, {"do": "elect", "leader": 2}, {"do": "elect", "leader": 1}]
    text = table({"replicas": [1, 2], "isr": [1], "events": events})
    assert text.startswith(
        "Broken: the 2 records of step 1, acknowledged to acks=all, are missing since step 2, when node 2 was elected"
        " without them; no longer at the end."
    )
    assert klog("replicas", "simulate", tmp_path / "events.json", "--output", "jsonl").exit_code == 4
