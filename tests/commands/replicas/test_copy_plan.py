"""Copies are made equal: on what real brokers left, and on random histories; and all of it can be taken back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.log.segment import Segment

from tests.change.plan.test_executor import end, other_process, said
from tests.support.power import Tree, less_pointers, tree

Image = Callable[[str], Path]
Run = Callable[..., Any]
pytestmark = [pytest.mark.corpora, pytest.mark.usefixtures("hasty")]

IMAGES = ("in-sync", "behind", "killed", "defaults", "split", "damage", "empty-leader", "compacted")


def brokers(root: Path) -> list[Path]:
    return sorted(root.glob("broker-*"))


def given(root: Path) -> list[str]:
    controller = root / "controller-4"
    return [*map(str, brokers(root)), *(["--metadata", str(controller)] if controller.exists() else [])]


def taken(image: Image, name: str, tmp_path: Path) -> Path:
    """Return a copy of an image that may be changed."""
    root = tmp_path / "disks"
    shutil.copytree(image(f"replicas/{name}.tar.xz"), root, symlinks=True)
    return root


def batches(partition: Partition) -> list[tuple[Any, ...]]:
    """Return the batches of a log, read one by one, from its log start on; a torn end is none."""
    start = partition.log_start_offset or 0
    found: list[tuple[Any, ...]] = []
    for files in partition.segments:
        for batch in Segment(partition.file(files.log)).batches():
            if isinstance(batch, Damage):
                found += [] if batch.is_unfinished else [("damage", batch.kind, batch.place.offset)]
            elif batch.last_offset >= start:
                found.append((batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc, batch.size))
    return found


def contents(root: Path) -> dict[str, dict[str, list[tuple[Any, ...]]]]:
    """Return the batches of each partition, by broker."""
    found: dict[str, dict[str, list[tuple[Any, ...]]]] = {}
    for broker in brokers(root):
        for partition in LogDir(str(broker)).partitions:
            if partition.topic != "__cluster_metadata":
                found.setdefault(partition.directory, {})[broker.name] = batches(partition)
    return found


def trees(root: Path) -> dict[str, Tree]:
    return {path.name: less_pointers(tree(path)) for path in sorted(root.iterdir()) if path.name != "klog-backup"}


def untouched(before: Mapping[str, Tree], after: Mapping[str, Tree], changed: set[str]) -> None:
    """See that nothing has changed but in the partitions of *changed* and in the checkpoints of log dirs."""
    for name, files in before.items():
        for file, entry in files.items():
            directory = file.partition("/")[0]
            if directory in changed or file in ("", ".", ".lock") or file.endswith("-offset-checkpoint"):
                continue
            assert after[name].get(file) == entry, (name, file)
        for file in after[name].keys() - files.keys():
            assert file.partition("/")[0] in changed or file == ".lock" or file.endswith("-offset-checkpoint"), file


def planned(klog: Run, root: Path, *more: str, code: int | None = 0) -> dict[str, Any]:
    done = klog("replicas", "plan", *given(root), *more, "--output", "json")
    assert code is None or done.exit_code == code, (done.exit_code, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compared(klog: Run, root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(klog("replicas", "diff", *given(root), "--output", "json").stdout)
    return {f"{one['topic']}-{one['partition']}": one for one in found["partitions"]}


def problems(klog: Run, broker: Path) -> set[str]:
    """Return what `klog verify --deep` finds wrong, by place."""
    found = json.loads(klog("verify", "--deep", broker, "--output", "json").stdout)["findings"]
    return {f"{one['file']}: {one['id']}" for one in found if one["severity"] != "note"}


POLICIES = ((), ("--keep", "newest"), ("--keep", "longest"), ("--keep", "kafka"), ("--keep", "2"))
QUICK = (("behind", 0), ("killed", 2), ("split", 1), ("damage", 0), ("empty-leader", 3), ("compacted", 4))
EVERY = [
    pytest.param(name, policy, id=f"{name} {' '.join(policy)}".strip(), marks=[] if quick else [pytest.mark.long])
    for name in IMAGES
    for number, policy in enumerate(POLICIES)
    for quick in [(name, number) in QUICK]
]


@pytest.mark.parametrize(("name", "policy"), EVERY)
def test_what_brokers_left_becomes_equal_and_can_be_taken_back(
    name: str, policy: tuple[str, ...], image: Image, tmp_path: Path, klog: Run
) -> None:
    root = taken(image, name, tmp_path)
    before, held = trees(root), contents(root)
    wrong = {broker.name: problems(klog, broker) for broker in brokers(root)}
    verdicts = compared(klog, root)
    done = planned(klog, root, *policy, "--repair", "--apply", code=None)
    left = {f"{one['topic']}-{one['partition']}": one for one in done["left"]}
    equal = {f"{one['topic']}-{one['partition']}": one for one in done["copies"]}
    assert equal.keys() | left.keys() == {one for one, found in verdicts.items() if found["verdict"] != "same"}
    after = contents(root)
    for one in equal:
        kept = held[one].get(f"broker-{equal[one]['kept']}", [])
        copies = after[one]
        assert set(copies) >= {f"broker-{node}" for node in verdicts[one]["copies"]}
        if not verdicts[one]["compacted"]:
            if any(batch[0] == "damage" for batch in kept):
                kept = next(iter(copies.values()))
                assert not any(batch[0] == "damage" for batch in kept)
            assert all(copy == kept for copy in copies.values()), one
    found = compared(klog, root)
    assert {one: found[one]["verdict"] for one in equal} == dict.fromkeys(equal, "same")
    for one in left:
        assert after[one] == held[one]
    untouched(before, trees(root), set(equal))
    for broker in brokers(root):
        assert problems(klog, broker) <= wrong[broker.name], broker
    if done["applied"]:
        assert klog("undo", done["backup"], "--apply").exit_code == 0
    assert trees(root) == before


def test_of_compacted_copies_a_whole_one_can_be_chosen(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "compacted", tmp_path)
    before = trees(root)
    for node in (1, 2, 3):
        kept = contents(root)["keyed-0"][f"broker-{node}"]
        done = planned(klog, root, "--topic", "keyed", "--choose", f"keyed-0={node}", "--apply")
        assert {one["kept"] for one in done["copies"]} == {node}
        assert all(copy == kept for copy in contents(root)["keyed-0"].values())
        cleaned = [partition.cleaner_offset or 0 for partition in partitions(root, "keyed-0")]
        assert max(cleaned) == cleaned[node - 1]
        assert not any(problems(klog, broker) for broker in brokers(root))
        assert klog("undo", done["backup"], "--apply").exit_code == 0
        assert trees(root) == before


def partitions(root: Path, name: str) -> list[Partition]:
    every = [partition for broker in brokers(root) for partition in LogDir(str(broker)).partitions]
    return [partition for partition in every if partition.directory == name]


def test_an_empty_copy_is_kept_only_where_it_is_chosen(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "empty-leader", tmp_path)
    missing = next(one for one in compared(klog, root).values() if one["missing"] and one["verdict"] == "missing")
    name, node = f"{missing['topic']}-{missing['partition']}", missing["missing"][0]
    narrowed = ("--topic", missing["topic"], "--partition", str(missing["partition"]))
    done = planned(klog, root, *narrowed, "--keep", str(node), code=4)
    assert [one["reason"] for one in done["left"]] == [
        f"the copy on {node} is empty or missing, and others have records: --choose {name}={node} keeps it"
    ]
    before = trees(root)
    done = planned(klog, root, *narrowed, "--choose", f"{name}={node}", "--apply")
    assert all(copy == [] for copy in contents(root)[name].values())
    assert sum(target["records_lost"] for target in done["copies"][0]["targets"])
    assert klog("undo", done["backup"], "--apply").exit_code == 0
    assert trees(root) == before


def test_what_is_missing_at_the_end_is_all_that_is_copied(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "behind", tmp_path)
    for one in planned(klog, root, code=4)["copies"]:
        kept = next(
            log for log in partitions(root, f"{one['topic']}-{one['partition']}") if f"r-{one['kept']}" in log.path
        )
        for target in one["targets"]:
            wanted = sum(size for base, *_, size in batches(kept) if base >= target["cut_to"])
            assert target["bytes_copied"] == wanted < kept.size
            assert (target["records_lost"], target["cut_to"] > 0) == (0, True)


def test_a_saved_plan_is_applied_once_and_its_losses_can_be_rescued(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "split", tmp_path)
    before = trees(root)
    saved = tmp_path / "plan.json"
    done = planned(klog, root, "--keep", "newest", "--topic", "pairs", "--save-plan", str(saved))
    assert trees(root) == before
    plan = json.loads(saved.read_text())
    assert plan["copies"] == done["copies"]
    assert sorted(map(Path, [*plan["log_dirs"], *plan["reads"]])) == brokers(root)
    lost = tmp_path / "lost.jsonl"
    assert klog("replicas", "rescue", *given(root), "--plan", saved, "--to", lost).exit_code == 0
    rows = [json.loads(line) for line in lost.read_text().splitlines()]
    assert len(rows) == sum(target["records_lost"] for one in plan["copies"] for target in one["targets"])
    assert klog("apply", saved).exit_code == 0
    assert {one["verdict"] for name, one in compared(klog, root).items() if name.startswith("pairs")} == {"same"}
    assert klog("undo", saved, "--apply").exit_code == 0
    assert trees(root) == before


def test_a_source_that_changes_makes_a_saved_plan_stale(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "behind", tmp_path)
    saved = tmp_path / "plan.json"
    planned(klog, root, "--topic", "orders", "--save-plan", str(saved))
    plan = json.loads(saved.read_text())
    assert [Path(one).name for one in plan["log_dirs"]] == ["broker-3"]
    assert [Path(one).name for one in plan["reads"]] == ["broker-1"]
    assert all(one["log_dir"] == 1 for one in plan["unchanged"])
    log = next(Path(plan["reads"][0]).glob("orders-0/*.log"))
    log.touch()
    before = trees(root)
    done = klog("apply", saved)
    assert done.exit_code == 8
    assert str(log) in done.stderr.decode()
    assert trees(root) == before


def test_a_replica_whose_disk_is_not_given_stops_everything(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "split", tmp_path)
    arguments = [str(path) for path in brokers(root)[:2]] + given(root)[-2:]
    done = klog("replicas", "plan", *arguments, "--keep", "newest")
    assert done.exit_code == 8
    assert "the disk of replica 3 is not given" in done.stderr.decode()
    done = klog("replicas", "plan", *arguments, "--keep", "newest", "--without", "3")
    assert done.exit_code == 0
    assert "node 3 must not come up with its old copies" in done.stderr.decode()
    assert klog("replicas", "plan", *arguments, "--without", "2").exit_code == 16


@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_lock_of_three_that_is_held_stops_all(number: int, image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "split", tmp_path)
    saved = tmp_path / "plan.json"
    planned(klog, root, "--keep", "newest", "--save-plan", str(saved))
    broker = brokers(root)[number]
    process = other_process(broker / ".lock")
    assert said(process) == b"held"
    before = trees(root)
    for done in (
        klog("replicas", "plan", *given(root), "--keep", "newest", "--apply"),
        klog("apply", saved),
    ):
        assert done.exit_code == 8
        assert str(broker) in done.stderr.decode()
        assert trees(root) == before
    end(process)
    assert not (root / "klog-backup").exists()


def test_a_log_dir_that_is_gone_stops_the_undo(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "split", tmp_path)
    before = trees(root)
    done = planned(klog, root, "--keep", "newest", "--apply")
    broker = brokers(root)[1]
    away = tmp_path / "away"
    broker.rename(away)
    now = trees(root)
    back = klog("undo", done["backup"], "--apply")
    assert back.exit_code == 8
    assert str(broker) in back.stderr.decode()
    assert trees(root) == now
    away.rename(broker)
    assert klog("undo", done["id"], "--backup", root / "klog-backup", "--apply").exit_code == 0
    assert trees(root) == before


def flip(log: Path, position: int) -> None:
    content = bytearray(log.read_bytes())
    content[position] ^= 1
    log.write_bytes(content)


def test_bad_batches_on_several_nodes_are_filled_from_one_another(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "behind", tmp_path)
    intact = contents(root)["orders-0"]
    logs = [min((broker / "orders-0").glob("*.log")) for broker in brokers(root)]
    for log, batch in zip(logs, (0, 2, 4), strict=True):
        sizes = [size for *_, size in intact["broker-3"]]
        flip(log, sum(sizes[:batch]) + 70)
    before, narrowed = trees(root), ("--topic", "orders", "--partition", "0")
    assert [one["verdict"] for one in planned(klog, root, *narrowed, code=4)["left"]] == ["damaged"]
    done = planned(klog, root, *narrowed, "--repair", "--apply")
    assert contents(root)["orders-0"] == dict.fromkeys(intact, intact["broker-1"])
    assert {target["records_lost"] for target in done["copies"][0]["targets"]} == {0}
    assert not any(problems(klog, broker) for broker in brokers(root))
    assert klog("undo", done["backup"], "--apply").exit_code == 0
    assert trees(root) == before


def test_a_batch_that_is_bad_everywhere_is_left(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "behind", tmp_path)
    for broker in brokers(root):
        flip(min((broker / "orders-0").glob("*.log")), 70)
    before, narrowed = trees(root), ("--topic", "orders", "--partition", "0")
    done = planned(klog, root, *narrowed, "--repair", "--apply", code=4)
    assert [one["reason"].rpartition(": ")[2] for one in done["left"]] == ["no other copy has this batch intact"]
    assert trees(root) == before


def test_what_becomes_of_a_partition_is_told_in_words(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "split", tmp_path)
    narrowed = (*given(root), "--topic", "orders", "--choose", "orders-0=3", "--partition", "0", "--partition", "1")
    done = klog("replicas", "plan", *narrowed)
    assert done.exit_code == 4
    assert done.stdout.decode().splitlines()[:-1] == [
        "1 partition planned to become equal, 1 left unchanged; 22 changes",
        "orders-0: diverged, keeps node 3 (0–39 e2)",
        "    node 1: log end 58 → 31; 27 records lost, 9 records added (943 B)",
        "    node 2: log end 48 → 31; 17 records lost, 9 records added (943 B)",
        "orders-1: diverged, left unchanged: the copies diverge at offset 37: --keep or --choose",
        "    --choose orders-1=1: 19 records lost",
        "    --choose orders-1=2: 25 records lost",
        "    --choose orders-1=3: 44 records lost",
        "nothing has been changed; next:",
    ]
    assert done.stdout.decode().splitlines()[-1].startswith("  klog replicas plan ")
    assert klog("replicas", "plan", *narrowed, "--apply").exit_code == 5
    for wrong in (("--keep", "oldest"), ("--keep", "7"), ("--choose", "orders-0"), ("--choose", "orders-0=7")):
        assert klog("replicas", "plan", *given(root), *wrong).exit_code == 16


def test_who_leads_after_a_race_is_not_picked(image: Image, tmp_path: Path, klog: Run) -> None:
    root = taken(image, "split", tmp_path)
    left = planned(klog, root, "--keep", "kafka", "--topic", "orders", code=4)["left"]
    assert len(left) == 3
    assert all(one["reason"].startswith("several nodes may become leader (") for one in left)
