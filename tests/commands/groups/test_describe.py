"""Groups of a log dir against the output of Kafka's tools while the broker lived."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.base.errors import ExitCode
from klog.commands.groups.group_details import GroupDetail, GroupQuery, describe_groups, export_rows

from tests.commands.serve.coordinator_logs import T, commit_of, write_batches, write_records
from tests.conftest import run_klog
from tests.oracles.plain.encode import Record, batch
from tests.support.insight import TRUTH, unpack


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("insight"))


def described(data: Path, query: GroupQuery = GroupQuery()) -> dict[str, GroupDetail]:  # noqa: B008  # immutable
    said: list[str] = []
    found = describe_groups([str(data)], query, said.append)
    assert found is not None
    assert said == []
    return {one.image.group: one for one in found}


def rows(one: GroupDetail) -> list[list[object]]:
    return [[row.topic, row.partition, row.offset, row.log_end, row.lag] for row in one.offsets]


def table(text: str) -> Iterator[list[str]]:
    """Yield the lines of a tool's tables, without their headers, by words."""
    for line in text.splitlines():
        if line.strip() and not line.startswith("GROUP "):
            yield line.split()


def test_offsets_ends_and_lags_are_those_of_the_tool(data: Path) -> None:
    """Commits of a classic, a new and a simple group; what a member owns without a commit; none of a deleted group."""
    found = described(data)
    assert {name: rows(one) for name, one in found.items() if name != "g-share"} == TRUTH["groups"]
    said = [(words[1], int(words[2]), *words[3:]) for words in table(TRUTH["tool"]["share"])]
    shown = [(r[0], r[1], *("-" if x is None else str(x) for x in (r[2], r[4]))) for r in rows(found["g-share"])]
    assert shown == said


def test_states_and_members_are_those_of_the_tool(data: Path) -> None:
    """A static member that was killed with its broker is a member still."""
    found = described(data)
    said = {words[0]: (words[-2], int(words[-1])) for words in table(TRUTH["tool"]["state"])}
    assert {name: (found[name].image.state, len(found[name].image.members)) for name in said} == said
    (words,) = table(TRUTH["tool"]["members"])
    (member,) = found[words[0]].image.members
    owned = f"clicks:{','.join(str(number) for _, number in member.partitions)}"
    assert [member.member_id, member.instance_id, member.host, member.client_id, owned] == [*words[1:5], words[7]]
    assert found["g-live"].image.protocol == "range"
    assert {name: one.image.type for name, one in found.items()} == {
        "g-848": "consumer",
        "g-classic": "classic",
        "g-live": "classic",
        "g-share": "share",
        "g-simple": "classic",
    }


def test_an_earlier_moment_has_the_commits_of_then(data: Path) -> None:
    """Also those of a group that was deleted since.  The end of a log at that time is unknown if its records have times
    of their own."""
    (moment,) = TRUTH["moments"]
    found = described(data, GroupQuery(at_ms=moment["at"]))
    wanted = {name: [row[:3] for row in told] for name, told in moment["groups"].items()}
    assert {name: [row[:3] for row in rows(one)] for name, one in found.items()} == wanted
    assert all(row.committed and row.committed.certain for one in found.values() for row in one.offsets)


@pytest.mark.parametrize("names", [("g-classic",), ("g-simple", "g-classic")])
def test_the_export_has_the_lines_of_the_tool(data: Path, names: tuple[str, ...]) -> None:
    lines = sorted(",".join(map(str, row)) for row in export_rows(list(described(data, GroupQuery(names)).values())))
    said = TRUTH["tool"]["export_one" if len(names) == 1 else "export_two"]
    assert lines == sorted(said.split())


def test_the_command_prints_all_forms(data: Path, tmp_path: Path) -> None:
    done = run_klog("groups", data, "--output", "json")
    assert done.exit_code == 0
    (live,) = (one for one in json.loads(done.stdout)["groups"] if one["group"] == "g-live")
    assert live["members"][0]["partitions"] == [["clicks", 0], ["clicks", 1], ["clicks", 2]]
    assert live["offsets"][0]["lag"] == 43
    csv = run_klog("groups", data, "--output", "csv", "--group", "g-8*").stdout.decode().splitlines()
    assert csv[0].startswith("group,type,state,topic,partition,offset,")
    assert csv[1] == "g-848,consumer,Empty,skew,1,30,0,,1795376714372,0,200,170,true,,,,"
    text = run_klog("groups", data, "--type", "share").stdout.decode()
    assert text.startswith("g-share: share, Empty, epoch 4, lag 33 (2 partitions unknown)\n")
    assert (
        run_klog(
            "groups", data, "--output", "reset-offsets", "--to", tmp_path / "offsets.csv", "--group", "g-classic"
        ).exit_code
        == 0
    )
    assert (tmp_path / "offsets.csv").read_bytes() == b"clicks,2,20\n"


def test_a_group_that_is_not_there_is_said(data: Path) -> None:
    done = run_klog("groups", data, "--group", "g-simpel")
    assert done.exit_code == ExitCode.PROBLEMS_LEFT
    assert b"no group g-simpel; did you mean g-simple" in done.stderr
    done = run_klog("groups", data / "clicks-0")
    assert done.exit_code == ExitCode.PROBLEMS_LEFT
    assert b"no __consumer_offsets" in done.stderr


def test_a_moment_takes_in_what_was_written_at_it(tmp_path: Path) -> None:
    """A commit at that very ms; the log ends at the first record that is later, also inside of a batch."""
    write_records(tmp_path / "__consumer_offsets-0", [commit_of(1, 5), commit_of(2, 6)])
    write_batches(tmp_path / "t-0", batch([Record(i, T + 5 * i, b"k", b"v") for i in range(3)]))

    def row(ms: int) -> list[object]:
        (one,) = described(tmp_path, GroupQuery(at_ms=T + ms))["g"].offsets
        return [one.offset, one.log_end, one.lag]

    assert row(5) == [1, 2, 1]
    assert row(9) == [2, 2, 0]
    assert row(10) == [2, 3, 1]
    assert described(tmp_path, GroupQuery(at_ms=T + 4)) == {}
