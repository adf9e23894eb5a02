"""Every file of the fixtures and corpora, field by field: each byte once; intact files have no problem."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.commands.bytes.covering import fields_of, is_known, problems
from tests.conftest import CORPORA, FIXTURES, extract, run_klog
from tests.support.samples import sampled

FOLDERS = sorted({path.parent for path in FIXTURES.rglob("*") if is_known(path)})
DAMAGED = {
    "crash/flip-middle/torn-0/00000000000000000296.log": [835],
    "crash/torn-in-batch/torn-0/00000000000000000364.log": [8099, 8250],
}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(FIXTURES)))
def test_the_fields_of_each_fixture_are_its_bytes(folder: Path) -> None:
    """And only the two damaged files have problems."""
    for path in filter(is_known, sorted(folder.iterdir())):
        found = fields_of(path)
        assert b"".join(one.data for one in found if not one.inside) == path.read_bytes(), path
        expected = DAMAGED.get(str(path.relative_to(FIXTURES)), [])
        assert [position for position, _ in problems(found)] == expected, path
        assert [one.field for one in found if one.inside and one.field.problem] == []
        assert [one.field.name for one in found if one.field.name == "bytes" and one.field.problem] == []


def test_every_kind_of_file_is_among_them() -> None:
    """Otherwise the test above would prove little."""
    kinds = Counter(path.suffix or path.name for folder in FOLDERS for path in folder.iterdir() if is_known(path))
    known = ".log .index .timeindex .txnindex .snapshot .checkpoint leader-epoch-checkpoint .metadata .properties"
    assert set(known.split()) < set(kinds)
    assert {"quorum-state", ".kafka_cleanshutdown", "replication-offset-checkpoint"} < set(kinds)


def joined_hex(fields: list[dict[str, Any]]) -> bytes:
    return bytes.fromhex("".join(field["hex"] for field in fields))


@pytest.mark.parametrize(
    "name",
    [
        *("modern/zstd-0", "modern/tx-0", "modern/__consumer_offsets-1", "modern/__cluster_metadata-0"),
        *("legacy/v0-gzip-0", "legacy/v1-lz4-0", "crash/flip-middle/torn-0", "crash/torn-in-batch/torn-0", "modern"),
    ],
)
def test_the_hex_of_the_json_gives_the_file_back(name: str) -> None:
    """The output is the file, byte for byte, also that of decompressed bytes with --full."""
    for path in filter(is_known, sorted((FIXTURES / name).iterdir())):
        for full in ([], ["--full"]):
            done = run_klog("bytes", path, "--output", "json", *full)
            shown = json.loads(done.stdout)
            assert joined_hex(shown["fields"]) == path.read_bytes(), path
            assert done.exit_code == (4 if shown["problems"] else 0)
            assert b"Traceback" not in done.stderr
            text = run_klog("bytes", path, *full)
            assert (text.exit_code, text.stderr) == (done.exit_code, done.stderr)
            count = re.search(r"   (\d+) problems?$", text.stdout.decode().splitlines()[0])
            assert int(count[1] if count else 0) == len(shown["problems"]), path
            for field in shown["fields"]:
                if full and "inside" in field:
                    assert len(joined_hex(field["inside"]["fields"])) == field["inside"]["size"]


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["modern/data", "legacy/data", "v39/data", "v39/data1", "public/kafkalite"])
def test_the_fields_of_each_file_of_a_corpus_are_its_bytes(name: str) -> None:
    """Real brokers of six versions wrote these."""
    _check_tree(CORPORA / name)


ARCHIVES = sorted(
    str(path.relative_to(CORPORA)) for kind in ("compaction", "crash") for path in CORPORA.glob(f"{kind}/*/*.gz")
)


@pytest.mark.corpora
@pytest.mark.parametrize("name", sampled(ARCHIVES, 17))
def test_the_fields_of_each_file_of_an_image_are_its_bytes(name: str, tmp_path: Path) -> None:
    """Wrecks of killed brokers, and logs that cleaners of three versions rewrote."""
    extract(CORPORA / name, tmp_path)
    _check_tree(tmp_path)


def _check_tree(root: Path) -> None:
    paths = [path for path in root.rglob("*") if is_known(path)]
    assert paths
    for path in paths:
        found = fields_of(path)
        assert b"".join(one.data for one in found if not one.inside) == path.read_bytes(), path
