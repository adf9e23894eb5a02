"""The comparison's own machinery: goldens, and Kafka's tool in one JVM, agree with each other and with a real run."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest

from tests.brokers import kafka
from tests.conftest import CORPORA, FIXTURES, writable_copy
from tests.support import goldens


@pytest.mark.kafka
def test_the_goldens_of_the_fixtures_are_what_kafka_says_today(tmp_path: Path) -> None:
    """An edit of a golden by hand, or of a fixture without its golden, is noticed."""
    root = tmp_path / "copy"
    shutil.copytree(FIXTURES, root)
    names = sorted(path.stem for path in (FIXTURES / "golden").glob("*.gz"))
    files = sorted({file for name in names for file, _ in goldens.read(FIXTURES / "golden" / f"{name}.gz")})
    with kafka.DumpTool(cwd=root) as tool:
        answers = goldens.ask(tool, root, files)
    assert sorted(answers) == names
    for name in names:
        assert answers[name] == dict(goldens.read(FIXTURES / "golden" / f"{name}.gz")), name


@pytest.mark.kafka
def test_one_jvm_for_many_runs_says_what_a_process_of_its_own_says(tmp_path: Path) -> None:
    """Thousands of comparisons are based on this."""
    root = tmp_path / "copy"
    shutil.copytree(FIXTURES / "crash/flip-middle/torn-0", root)
    files = ["00000000000000000296.log", "00000000000000000364.index", "00000000000000000364.timeindex", "none.log"]
    with kafka.DumpTool(cwd=root) as tool:
        for file in files:
            together = tool.run("--files", file, "--print-data-log")
            alone = kafka.dump(kafka.NEWEST, "--files", file, "--print-data-log", cwd=root)
            assert together.stdout == alone.stdout
            assert together.exit_code == alone.exit_code
            trace = f'Exception in thread "main" {together.died}\n\tat ' if together.died else ""
            assert alone.stderr.decode().startswith(together.stderr.decode() + trace)
    assert together.died == 'java.lang.NumberFormatException: For input string: "none"'


@pytest.mark.kafka
@pytest.mark.corpora
def test_kafkas_tool_here_says_what_the_corpora_recorded(tmp_path: Path) -> None:
    """The goldens of the corpora were made on another machine, by processes; ours are from one JVM here."""
    root = tmp_path / "data"
    writable_copy(CORPORA / "modern/data", root)
    recorded = gzip.decompress((CORPORA / "modern/golden/data.deep.txt.gz").read_bytes())
    sections = re.split(rb"^(?=Dumping \S+/\d{20}\S*\.[a-z]+$)", recorded, flags=re.M)[1:]
    assert len(sections) > 200
    with kafka.DumpTool(cwd=root) as tool:
        for section in sections:
            file = section.split(b"\n", 1)[0].removeprefix(b"Dumping ").decode()
            assert tool.run("--files", file, "--deep-iteration", "--print-data-log").stdout == section, file
