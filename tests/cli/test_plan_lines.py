"""Changes of files in words: one line for each file, and one for many segments that change in the same way."""

from __future__ import annotations

from klog.change.plan.model import PUT, REMOVE, TRUNCATE, Action, FileState, Plan
from klog_cli.views.plan_lines import action_lines, changed_files


def state(size: int) -> FileState:
    return FileState(size, f"sha256:{size:064x}", 0o644, 0, 0, 0)


def plan(*actions: Action) -> Plan:
    return Plan("id", "", "klog recover", ("/data",), ("/backup",), actions)


def test_a_file_that_is_cut_and_then_replaced_is_one_change() -> None:
    made = plan(
        Action(TRUNCATE, "a-0/0.index", state(16), state(0)), Action(PUT, "a-0/0.index", state(0), state(24), "s")
    )
    assert [*action_lines(made, made.actions)] == ["replace  a-0/0.index (16 B → 24 B)"]
    assert changed_files(made) == "1 file"


def test_a_file_that_is_cut_and_then_removed_is_removed() -> None:
    made = plan(Action(TRUNCATE, "a-0/0.log", state(16), state(8)), Action(REMOVE, "a-0/0.log", state(8), None))
    assert [*action_lines(made, made.actions)] == ["remove   a-0/0.log (16 B)"]


def test_many_segments_that_change_alike_are_one_line_unless_all_are_asked_for() -> None:
    made = plan(*(Action(PUT, f"a-0/{base}.index", None, state(8), "s") for base in range(5)))
    assert [*action_lines(made, made.actions)] == ["create   a-0/0.index and 4 more like it (40 B)"]
    assert len([*action_lines(made, made.actions, everything=True)]) == 5
    few = plan(*made.actions[:3])
    assert len([*action_lines(few, few.actions)]) == 3


def test_partitions_are_not_mixed() -> None:
    made = plan(*(Action(PUT, f"{name}/{base}.index", None, state(8), "s") for name in "ab" for base in range(4)))
    assert [*action_lines(made, made.actions)] == [
        "create   a/0.index and 3 more like it (32 B)",
        "create   b/0.index and 3 more like it (32 B)",
    ]
