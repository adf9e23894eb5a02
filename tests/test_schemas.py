"""The schemas in docs/schemas are what `--output json` prints: no field missing, none of another type, none untold."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from klog_cli.command_catalog import read

from tests.commands.serve.serving import Serving, Wire
from tests.conftest import CORPORA, FIXTURES, ROOT, run_klog, run_klog_process, writable_copy
from tests.oracles.plain import encode
from tests.partition.verify.faults import FAULTS
from tests.support import tiers
from tests.support.samples import sampled
from tools import json_fields

SPLIT = "replicas/split/broker-1 replicas/split/broker-2 replicas/split/broker-3"
RUNS = [
    *("verify modern", "verify crash/flip-middle", "verify legacy", "verify --deep v39/data v39/data1"),
    *("explain", "explain bad-crc retention-due"),
    *("audit modern", "audit crash/torn-in-batch", "audit misrouted modern", "audit misrouted replicas/keys/broker-1"),
    *("describe modern", "describe legacy", "describe modern/plain-1", "describe modern/empty-0"),
    *("describe crash/flip-middle/torn-0", "describe compaction/after", "describe compaction/after/tx-later-0"),
    *("lookup modern/idempotent-0 --offset 202", "lookup modern/idempotent-0 --offset 99999"),
    *("lookup crash/flip-middle/torn-0 --offset 302", "lookup legacy/v0-none-0 --offset 3"),
    *("lookup modern/idempotent-0 --timestamp 2025-06-15T15:06:42Z", "lookup modern/tx-0 --offset 5"),
    *("lookup modern/idempotent-0 --timestamp 2035-06-15T15:06:42Z", "lookup modern/empty-0 --offset 0"),
    *("lookup modern/trimmed-0 --offset 1", "lookup compaction/after/keys-none-0 --offset 0"),
    *("transactions modern", "transactions crash/flip-middle", "transactions compaction/before"),
    *("doctor modern", "doctor crash/flip-middle", "doctor v39/data v39/data1", "doctor --kafka-version 2.8 legacy"),
    *("doctor --records replicas/keys/broker-1", "doctor --node-id 99 modern"),
    *("bytes modern/tx-0 --offset 5", "bytes modern/zstd-0 --offset 0", "bytes crash/flip-middle/torn-0 --offset 301"),
    *(
        "bytes modern/meta.properties",
        "bytes modern/plain-1/00000000000000000000.index",
        "bytes legacy/v0-gzip-0 --offset 0",
    ),
    *("fetch modern/plain-1 --offset 5", "fetch modern/tx-0 --offset 0 --isolation read_committed"),
    *("fetch modern/plain-1 --offset 5 --max-bytes 100", "fetch modern/plain-1 --offset 99999"),
    *("keys check replicas/keys/broker-1", "keys check modern"),
    *(
        "groups modern",
        "groups modern --at-time 2026-11-21T10:20:02Z",
        "stats modern",
        "stats legacy crash/flip-middle",
    ),
    f"replicas diff {SPLIT} --metadata replicas/split/controller-4",
    f"replicas diff {SPLIT} --metadata replicas/split/controller-4 --up 1",
    f"replicas diff {SPLIT.replace('split', 'behind')}",
    *("space modern", "space modern --top-keys 3 --codecs zstd,gzip --sample 1 --free 5G", "space compaction/before"),
    *("space legacy crash/flip-middle", f"space {SPLIT} --free 10K"),
    *("metadata show modern", "metadata show replicas/quorum/broker-1", "metadata show replicas/split/controller-4"),
    *("metadata compare replicas/quorum/broker-1 replicas/quorum/broker-2", "metadata compare modern"),
    *("assign --brokers 0,1,2 --partitions 4 --replication 2 --seed 1", "assign --check modern"),
    *("assign --brokers 0,1 --racks 0:a,1:b --partitions 4 --replication 2 --algorithm classic --start-index 1",),
    "assign --check replicas/split/controller-4",
    *("recover crash/flip-middle", "recover --like-broker crash/torn-in-batch", "recover --salvage legacy"),
    *("recover --mark-clean crash/torn-in-batch", "recover modern --salvage", "truncate modern/plain-1 --to-offset 20"),
    *("truncate modern/tx-0 --to-offset 9999", "compact modern", "compact compaction/before --policy compact --all"),
    *("compact compaction/before --policy compact --estimate", "compact crash/flip-middle --policy compact --all"),
    "adopt modern --to modern",
    *("plans modern", f"replicas plan {SPLIT} --metadata replicas/split/controller-4", f"replicas plan {SPLIT}"),
    f"replicas plan {SPLIT} --metadata replicas/split/controller-4 --keep newest",
]
LINES = [
    *("timeline modern", "timeline crash/flip-middle", "timeline compaction/before", "timeline legacy"),
    f"timeline {SPLIT} replicas/split/controller-4",
    *("records modern legacy", "records crash/flip-middle --from-offset 0"),
    *("dump modern/plain-1 modern/tx-0 modern/__consumer_offsets-1", "dump compaction/after/tx-later-0 legacy"),
    *("search modern", "search legacy", "search modern --values base64 -n 9", "search modern --values hex -n 9"),
    *(f"search modern -t gzip --header trace -n 9 --values {form}" for form in ("redacted", "none", "hex", "base64")),
    *("dump crash/flip-middle", "dump modern legacy crash/flip-middle --batches", "dump modern/dense-0 --with-indexes"),
    *(f"dump modern/tx-0/00000000000000000016.{kind}" for kind in ("index", "timeindex", "txnindex")),
    *("partition user-42 --partitions 12", "partition ff --as hex --partitions 12", "partition --null --partitions 3"),
    *("metadata history modern --partition plain-1", "metadata history modern --broker 1"),
    *("metadata history replicas/quorum/broker-1 --quorum", "metadata history replicas/split/controller-4 --broker 1"),
    "metadata history replicas/split/controller-4 --partition orders-0",
    *(f"replicas simulate replicas/simulate/{path.name}" for path in sorted(FIXTURES.glob("replicas/simulate/*.json"))),
]
RECORDS = '{"topic":"plain","partition":1,"key":"k","value":"v"}\n' * 3 + '{"bad":1}\n'
CHANGES = {
    "modern": [
        *("write records.jsonl --to data --skip-bad", "write records.jsonl --to new --skip-bad"),
        *("write data/tx-open-0 --to another", "write records.jsonl --to data --skip-bad --apply"),
        *("truncate data/plain-1 --to-offset 20 --save-plan plan.json", "apply plan.json", "apply plan.json"),
        *(
            "plans data",
            "undo plan.json",
            "undo plan.json --apply",
            "adopt data/tx-0 --as plain-0 --to data --replace",
        ),
        "adopt data/plain-1 --as plain-0 --to data --replace --apply",
    ],
    "crash/flip-middle": ["recover data --salvage --apply", "recover data --apply", "plans data"],
    "crash/torn-in-batch": ["recover data --mark-clean --apply", "recover data --mark-clean"],
    "compaction/before": [
        "compact data --topic grouping --policy compact --apply",
        "compact data --to out --policy compact",
    ],
    "replicas/quorum": [
        "metadata plan data/broker-1 data/broker-2 data/broker-3 --voters 1@a:1,2@b:2,3@c:3",
        "metadata plan data/broker-1 data/broker-2 data/broker-3 --only-broker 1",
        "metadata plan data/broker-1 data/broker-2 data/broker-3 --voters 1@a:1,2@b:2,3@c:3 --apply",
    ],
}
"""Commands one after the other, by the log dir that they change."""
REMOTE = (
    *(
        "dump data -t fine --remote tier -o jsonl",
        "dump --remote tier -t fine -p 0 -o jsonl",
        "lookup data --remote tier -t fine -p 0 --offset 3 -o json",
        "dump data -t fine --remote tier --batches -o jsonl",
        "lookup data --remote tier -t fine -p 0 --timestamp 0 -o json",
    ),
    *("verify data --remote tier", "space data --remote tier", "fetch data --remote tier -t fine -p 0 --offset 3"),
    *("timeline data --remote tier", "timeline --remote tier -t fine"),
    *("remote ls data", "remote ls data --remote tier --segments", "remote ls --remote tier --segments"),
    *("remote verify data --remote tier", "remote verify data --remote tier --quick"),
    *("remote fetch data --remote tier --to a", "remote fetch --remote tier -t fine --to b"),
    *("remote orphans data --remote tier", "remote orphans data --remote tier --older-than 0"),
    *("remote attach --remote tier --to data", "remote attach --remote tier --to data -t fine"),
    *("remote ls data --remote tier --at-time 0", "remote ls data --remote tier --remote-layout aiven --segments"),
)
"""Commands about `fixtures/tiered.tar.xz`."""


def command_of(run: str) -> str:
    """Return the command in *run*: of one word or of two."""
    words = run.split()
    return max((name for name in (words[0], " ".join(words[:2])) if name in json_fields.every()), key=len)


WRITING = ("export", "spark export", "spark compact")
"""Commands whose --output is the form of the files that they write."""


@functools.cache
def strict(command: str) -> Any:
    """Return a strict reader of *command*'s schema."""
    # Here, for every worker imports this file, and what this imports compiles forty grammars.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json_fields.schema(json_fields.every()[command], only_these=True))


def faults(command: str, printed: Any) -> list[str]:
    """Return what a strict reader of *command*'s schema says about *printed*."""
    from jsonschema.exceptions import best_match

    # A value that may be one of several has the faults of the likeliest.
    likely = [best_match([error]) for error in strict(command).iter_errors(printed)]
    return [f"{error.json_path}: {error.message[:200]}" for error in likely if error is not None]


def check(run: str, codes: tuple[int, ...] = (0, 1, 4, 5)) -> int:
    """Run a command and hold all that it prints against its schema; return how much that was."""
    command = command_of(run)
    done = run_klog(*shlex.split(run), "--output", "json" if command in json_fields.SCHEMAS else "jsonl")
    assert done.exit_code in codes, (run, done.exit_code, done.stderr)
    printed = [done.stdout] if command in json_fields.SCHEMAS and done.stdout else done.stdout.splitlines()
    found = [fault for one in printed for fault in faults(command, json.loads(one))]
    assert found == [], run
    return len(printed)


@pytest.mark.parametrize("run", [*RUNS, *LINES])
def test_what_is_printed_is_what_the_schema_says(run: str, monkeypatch: pytest.MonkeyPatch, state_home: Path) -> None:
    """Who writes a script reads the schema, not klog's source."""
    monkeypatch.chdir(FIXTURES)
    assert check(run, (0, 4, 8))


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("name", CHANGES)
def test_what_a_change_prints_is_what_the_schema_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned, applied, when there is nothing left to do, and taken back."""
    writable_copy(FIXTURES / name, tmp_path / "data")
    (tmp_path / "records.jsonl").write_text(RECORDS)
    monkeypatch.chdir(tmp_path)
    for run in CHANGES[name]:
        assert check(run)


def test_what_is_printed_of_remote_storage_is_what_the_schema_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers.unpack(tmp_path)
    monkeypatch.chdir(tmp_path)
    for run in REMOTE:
        assert check(run)


def test_what_schemas_of_a_registry_print_is_what_the_schemas_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version with a reference, a deleted one, one that cannot be used, and a bad record."""
    refers = [{"name": "B", "subject": "b", "version": 1}]
    versions = [("b", 1, {"schema": '{"type":"enum","name":"B","symbols":["x"]}'}), ("c", 2, {"schema": "{"})]
    versions += [("a", 1, {"schema": '["null","B"]', "references": refers}), ("a", 1, {"schema": "7", "deleted": True})]
    lines = [
        {
            "key": json.dumps({"keytype": "SCHEMA", "subject": subject, "version": 1}),
            "value": json.dumps({"id": i, **one}),
        }
        for subject, i, one in versions
    ]
    config = {"key": '{"keytype":"CONFIG"}', "value": '{"compatibilityLevel":"NONE"}'}
    (tmp_path / "schemas.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in (*lines, config, {"key": "?"})))
    monkeypatch.chdir(tmp_path)
    assert check("schemas list schemas.jsonl --deleted", (4,))
    assert check("schemas show schemas.jsonl --id 1 --resolved", (4,))
    assert check("schemas show schemas.jsonl --subject b", (0,))
    (tmp_path / "records.jsonl").write_text('{"topic":"t","partition":0,"key":null,"value_base64":"AAAAAAEA"}\n' * 2)
    assert run_klog("write", "records.jsonl", "--to", "new").exit_code == 0
    for command in ("dump", "search", "records"):
        assert check(f"{command} new/t-0 --schemas schemas.jsonl", (0, 4))
    (tmp_path / "t-0").mkdir()
    values = [b"\0\0\0\0\2\0", b"\0\0\0\0\2\x09", b"\0\0\0\0\x09", b"text", None]
    records = [encode.Record(offset, value=value) for offset, value in enumerate(values)]
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(encode.batch(records))
    assert check("schemas check t-0 --schemas schemas.jsonl --sample 1", (4,))


def test_what_a_copy_and_its_server_print_is_what_the_schemas_say(tmp_path: Path) -> None:
    """One line for each request, and the copied partitions at the end."""
    log = tmp_path / "requests"
    with (
        log.open("wb") as requests,
        Serving(FIXTURES / "modern", "--output=jsonl", stdout=requests.fileno()) as serving,
    ):
        with Wire(serving.port) as wire:
            assert wire.fetch("plain", 0, partition=1)["records"]
        to = tmp_path / "copy"
        done = run_klog_process("follow", serving.bootstrap, "--to", to, "--topic", "tx*", "--output", "json")
    assert done.exit_code == 0, done.stderr
    copied = json.loads(done.stdout)
    assert len(copied["partitions"]) > 1
    assert faults("follow", copied) == []
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    assert {"Fetch", "Metadata"} <= {line["api"] for line in lines}
    assert [fault for line in lines for fault in faults("serve", line)] == []


WHOLE = (
    "verify --deep",
    "describe",
    "recover",
    "recover --salvage",
    "recover --like-broker",
    "doctor",
    "audit",
    "space",
)
WHOLE += ("transactions", "groups", "timeline", "stats", "audit misrouted", "keys check")


def images() -> Iterator[tuple[str, str]]:
    """Yield each damage that is known, as kind and name."""
    return ((kind, name) for kind, makers in FAULTS.items() for name in makers)


@pytest.mark.parametrize(("kind", "name"), sampled(images(), 11))
def test_what_is_printed_of_damage_is_what_the_schema_says(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_home: Path
) -> None:
    """It is then that fields are null."""
    FAULTS[kind][name](tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    # 16: of Kafka's own topics there is nothing to audit, and some names are none of a partition.
    for command in WHOLE:
        check(f"{command} data", (0, 4, 8, 16))
    for partition in sorted((tmp_path / "data").glob("*-[0-9]*")):
        check(f"dump {partition}", (0, 4, 8, 16))


ARCHIVES = sorted(str(path.relative_to(CORPORA)) for path in CORPORA.glob("crash/*/before.tar.gz"))


@pytest.mark.corpora
@pytest.mark.parametrize("archive", sampled(ARCHIVES, 17))
def test_what_is_printed_of_wrecks_is_what_the_schema_says(
    archive: str, image: Callable[[str], Path], state_home: Path
) -> None:
    """Log dirs of killed brokers, with a damage each."""
    data = image(archive)
    for command in WHOLE:
        check(f"{command} {data}", (0, 4, 8))


def test_each_schema_is_held_against_an_output() -> None:
    """One that nothing is held against may say anything."""
    runs = [*RUNS, *LINES, *REMOTE, *(run for runs in CHANGES.values() for run in runs)]
    own = {"follow", "serve", "schemas list", "schemas show", "schemas check"}  # tests of their own
    assert {command_of(run) for run in runs} | own == set(json_fields.every())


def test_each_command_with_json_has_a_schema() -> None:
    """A new one gets its fields declared."""
    forms = {
        command.name: option.metavar or ""
        for command in read().walk()
        for option in command.options
        if "--output" in option.names
    }
    printing = {name for name, metavar in forms.items() if "json" in metavar and name not in WRITING}
    assert printing == json_fields.every().keys() - {"audit"} | json_fields.SAME.keys()
    lines_alone = {name for name in printing if "json" not in forms[name].split("|")}
    assert lines_alone | json_fields.ROWS.keys() == json_fields.LINES.keys()


@pytest.mark.parametrize(
    "run",
    [
        "timeline modern",
        "search modern --key key-1",
        "partition a b --partitions 3",
        "metadata history modern --quorum",
        "replicas simulate replicas/simulate/quota.json",
    ],
)
def test_the_rows_of_json_are_the_lines(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One object, whose only member is the array of them."""
    monkeypatch.chdir(FIXTURES)
    command = command_of(run)
    lines = [json.loads(line) for line in run_klog(*run.split(), "--output", "jsonl").stdout.splitlines()]
    found = json.loads(run_klog(*run.split(), "--output", "json").stdout)
    assert found == {json_fields.ROWS[command]: lines}


@pytest.mark.parametrize("command", json_fields.every())
def test_the_files_are_those_of_the_declarations(command: str) -> None:
    """`make completions` mends a file from yesterday."""
    from jsonschema import Draft202012Validator

    text = (ROOT / "docs/schemas" / json_fields.file_of(command)).read_text(encoding="utf-8")
    assert text == json_fields.text(command)
    Draft202012Validator.check_schema(json.loads(text))


@pytest.mark.parametrize("change", ["missing", "type", "untold", "word"])
def test_another_output_is_refused(change: str) -> None:
    """Were it not, the tests above could not fail."""
    finding = {name.removesuffix("?"): None for name in json_fields.FINDING}
    finding |= {"id": "bad-crc", "severity": "damage", "message": "CRC", "topic_id": None, "count": 1}
    printed: dict[str, Any] = {"partitions": 1, "segments": 1, "bytes": 9, "batches": 1, "records": 1}
    assert faults("verify", {**printed, "findings": [finding]}) == []
    changed: dict[str, dict[str, Any]] = {
        "missing": {name: value for name, value in finding.items() if name != "offset"},
        "type": {**finding, "offset": "1844"},
        "untold": {**finding, "offsets": 1},
        "word": {**finding, "severity": "fatal"},
    }
    assert len(faults("verify", {**printed, "findings": [changed[change]]})) == 1
