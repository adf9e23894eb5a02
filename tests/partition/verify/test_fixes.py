"""The advice of each finding is proven: its fix is run, and the announced outcome is true."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from klog.partition.verify.findings import KINDS

from tests.commands.recover.kept import INSIDE, UNMENDABLE
from tests.conftest import FIXTURES, Ran, run_klog, writable_copy
from tests.partition.verify.faults import FAULTS, UNMADE
from tests.support.power import tree

pytestmark = pytest.mark.usefixtures("hasty")
NOW = "--now=2026-11-21T06:00:00Z"
MODES: dict[str, tuple[str, ...]] = {"default": (), "salvage": ("--salvage",), "like-broker": ("--like-broker",)}
CASES = [(kind, name) for kind, makers in FAULTS.items() for name in makers]

STOPS = {"follow-file-malformed": "klog-follow.json"}
"""The files that decide about the treatment of partitions, by their finding: until they can be read nothing is
repaired."""

Found = dict[str, Any]


def refuses(ran: Ran, file: str) -> None:
    """See that nothing was done, and why."""
    assert (ran.exit_code, ran.stdout, file in ran.stderr.decode()) == (4, b"", True), ran


def sample(every: int = len(CASES)) -> Iterator[object]:
    """Yield the first case of each kind and each *every*-th of the others; the rest for whoever has time."""
    firsts = {(kind, next(iter(makers))) for kind, makers in FAULTS.items()}
    for at, (kind, name) in enumerate(CASES):
        marks = [] if (kind, name) in firsts or at % every == 0 else [pytest.mark.long]
        yield pytest.param(kind, name, id=f"{kind}: {name}", marks=marks)


def test_every_finding_is_made_here() -> None:
    """A new finding needs an example here that proves its advice."""
    assert {kind for kind, makers in FAULTS.items() if makers} | UNMADE.keys() == KINDS.keys()
    assert not {kind for kind in UNMADE if FAULTS.get(kind)}
    assert all(not KINDS[kind].fix for kind in UNMADE), "what advises a command has to be made"


def found_in(path: Path) -> list[Found]:
    found: list[Found] = json.loads(run_klog("verify", "--deep", path, "--output=json").stdout)["findings"]
    return found


def problems(found: list[Found]) -> set[tuple[str, str]]:
    """Return what of it somebody has to do something about, by ids and files.

    Leftovers by design, for which no command is named, are not counted.
    """
    told = [one for one in found if one["severity"] != "note"]
    left = UNMENDABLE | INSIDE
    kept = [one for one in told if one["id"] not in left and not _is_in_message(one) and not _is_aside(one["file"])]
    return {(one["id"], one["file"]) for one in kept}


def _is_in_message(one: Found) -> bool:
    return one["id"] == "bad-crc" and one["fix"] is None


def _is_aside(file: str) -> bool:
    directory = file.split("/")[0]
    return directory.endswith(("-delete", "-stray")) or directory == "__cluster_metadata-0"


def recovered(path: str, *mode: str) -> tuple[int, Found]:
    ran = run_klog("recover", path, *mode, NOW, "--output=json")
    return ran.exit_code, json.loads(ran.stdout)


def command(fix: str | None) -> list[str]:
    """Return the arguments of the command that a fix names; none if it names none."""
    words = shlex.split(fix or "")
    return words[words.index("klog") + 1 :] if "klog" in words else []


@pytest.mark.parametrize(("kind", "name"), list(sample(every=3)))
def test_a_fix_fixes_or_says_that_it_does_not(kind: str, name: str, tmp_path: Path) -> None:
    """The cost is reported: by itself, or because no other mode keeps more."""
    data = tmp_path / "data"
    FAULTS[kind][name](data)
    mine = [one for one in found_in(data) if one["id"] == kind]
    assert mine, {one["id"] for one in found_in(data)}
    for fix in {one["fix"] for one in mine}:
        if words := command(fix):
            here = tmp_path / "run" / "data"
            shutil.copytree(data, here)
            words = [str(here / Path(word).relative_to(data)) if word.startswith(str(data)) else word for word in words]
            _costs_what_it_says(fix, words)
            _fixes(words, {one["file"] for one in mine if one["fix"] == fix}, kind)
            shutil.rmtree(tmp_path / "run")


def _costs_what_it_says(fix: str, words: list[str]) -> None:
    path = words[1]
    ran = run_klog(*words, NOW, "--output=json")
    planned = json.loads(ran.stdout)
    if not planned["lost"] or not fix.startswith("klog "):
        return  # nothing is lost, or the words in front of the command announce a possible loss
    for mode in MODES.values():
        _, other = recovered(path, *mode)
        if mode != ("--like-broker",) or other["lost"]:
            assert other["kept"]["records"] <= planned["kept"]["records"], mode


def _fixes(words: list[str], files: set[str], kind: str) -> None:
    """Run a fix, and compare its promise with the findings afterwards, in the partition or in the whole log dir."""
    path = Path(words[1])
    is_log_dir = path.name == "data"
    ran = run_klog(*words, "--apply", NOW, "--output=json")
    after = found_in(path if is_log_dir else path.parent)
    said = json.loads(ran.stdout)
    still = {one["file"] for one in after if one["id"] == kind} & files
    assert not still or ran.exit_code & 4, f"{still} is still there"
    there = problems([one for one in after if is_log_dir or one["file"].split("/")[0] == path.name])
    assert there == {(one["id"], one["file"]) for one in said["left"]}
    assert ran.exit_code == bool(said["actions"]) + 4 * bool(there), ran


@pytest.mark.parametrize("name", ["last segment", "metadata log", "stray", "delete"])
def test_nothing_is_advised_where_nothing_is_repaired(name: str, tmp_path: Path) -> None:
    """Directories that a broker has set aside or is about to delete, and the metadata log."""
    data = tmp_path / "data"
    FAULTS["torn-tail"][name](data)
    fixes = {one["fix"] for one in found_in(data) if one["id"] == "torn-tail"}
    assert (fixes == {None}) == (name != "last segment")


@pytest.mark.parametrize("state", ["stray", "delete"])
@pytest.mark.parametrize("mode", MODES)
def test_a_directory_that_is_set_aside_and_named_is_said_not_to_be_repaired(
    state: str, mode: str, tmp_path: Path
) -> None:
    """A partition that is named is to be repaired: it must not look healthy.  In a log dir it is passed over."""
    data = tmp_path / "data"
    FAULTS["torn-tail"][state](data)
    (partition,) = (path for path in data.iterdir() if path.name.endswith(f"-{state}"))
    before = tree(data)
    ran = run_klog("recover", partition, *MODES[mode], "--apply", "--quiet")
    assert ran.exit_code == 4
    assert b"a broker has set it aside or will delete it" in ran.stdout
    assert run_klog("recover", data, *MODES[mode], "--apply").exit_code == 0
    assert tree(data) == before


@pytest.mark.parametrize("mode", ["default", "salvage"])
@pytest.mark.parametrize("fixture", ["crash/torn-in-batch", "crash/flip-middle", "modern", "legacy", "v39/data"])
def test_what_is_left_is_what_is_found_afterwards(fixture: str, mode: str, tmp_path: Path) -> None:
    """1 means that nothing is left to find, 4 that something is."""
    data = writable_copy(FIXTURES / fixture, tmp_path / "data")
    ran = run_klog("recover", data, *MODES[mode], "--apply", NOW, "--output=json")
    said = json.loads(ran.stdout)
    left = {(one["id"], one["file"]) for one in said["left"]}
    assert problems(found_in(data)) == left
    assert ran.exit_code == bool(said["actions"]) + 4 * bool(left), ran


@pytest.mark.parametrize(("kind", "name"), list(sample()))
@pytest.mark.parametrize("mode", ["default", "salvage"])
def test_each_mode_tells_what_it_leaves_of_each_finding(kind: str, name: str, mode: str, tmp_path: Path) -> None:
    """The whole log dir is compared; the default follows no producers, and is compared with `klog verify` without
    --deep."""
    data = tmp_path / "data"
    FAULTS[kind][name](data)
    ran = run_klog("recover", data, *MODES[mode], "--apply", NOW, "--output=json")
    if kind in STOPS:
        refuses(ran, STOPS[kind])
        return
    said = json.loads(ran.stdout)
    left = {(one["id"], one["file"]) for one in said["left"]}
    deep = ["--deep"] if mode == "salvage" else []
    found = json.loads(run_klog("verify", data, *deep, "--output=json").stdout)["findings"]
    assert problems(found) == left
    reasons = any(one["reason"] for one in said["partitions"])
    assert bool(ran.exit_code & 4) == bool(left or reasons), ran


@pytest.mark.parametrize(("kind", "name"), list(sample()))
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_brokers_start_that_loses_something_tells_what_it_leaves(
    kind: str, name: str, is_clean: bool, tmp_path: Path
) -> None:
    """If it loses nothing, other faults are not looked for, as in a broker: `klog verify` does that."""
    data = tmp_path / "data"
    FAULTS[kind][name](data)
    if not is_clean:
        (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
        (data / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    ran = run_klog("recover", data, "--like-broker", "--apply", NOW, "--output=json")
    if kind in STOPS:
        refuses(ran, STOPS[kind])
        return
    said = json.loads(ran.stdout)
    left, there = {(one["id"], one["file"]) for one in said["left"]}, problems(found_in(data))
    assert left <= there
    assert left == there or not said["lost"]
    assert not left or ran.exit_code & 4
