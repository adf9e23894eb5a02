"""The bill of materials names all parts of the one file, and the sums name all files."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, ROOT, run_klog
from tests.release.root import one_file

pytestmark = pytest.mark.release
WANTED = {
    *("cpython", "openssl", "zlib", "snappy", "zstd", "liblz4", "isa-l", "musl", "typer", "rich", "pygments"),
    *("expat", "libmpdec", "mimalloc", "libc++", "xxhash", "markdown-it-py", "mdurl", "shellingham", "annotated-doc"),
    *("lz4", "zstandard", "isal", "textual", "platformdirs", "typing-extensions", "fastavro", "protobuf"),
}


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_the_bill_names_what_is_inside(arch: str) -> None:
    """Each with a version and a licence, and the digest of fetched ones."""
    file = one_file(arch)
    bill = json.loads((ROOT / "dist" / f"{file.name}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    hashes = [{"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}]
    assert bill["metadata"]["component"]["hashes"] == hashes
    parts = {part["name"]: part for part in bill["components"]}
    assert set(parts) == WANTED
    assert len(parts) == len(bill["components"]) == len({part["bom-ref"] for part in bill["components"]})
    for part in parts.values():
        assert re.fullmatch(r"\d+(\.\d+)+", part["version"]), part
        (licence,) = part["licenses"]
        assert licence.get("expression") or licence["license"]["id"]
    fetched = (ROOT / "release" / "inputs.txt").read_text()
    assert all(one["content"] in fetched for part in parts.values() for one in part.get("hashes", []))


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_the_bill_keeps_to_the_schema_of_cyclonedx(arch: str) -> None:
    bill = (ROOT / "dist" / f"{one_file(arch).name}.cdx.json").read_text()
    # Here, for every worker imports this file, and what these import compiles forty grammars.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_5)
    assert validator.validate_str(bill) is None
    assert validator.validate_str(bill.replace('"CycloneDX"', '"Cyclone"')) is not None


def test_the_sums_are_those_of_all_files() -> None:
    lines = (ROOT / "dist" / "SHA256SUMS").read_text().splitlines()
    named = dict(reversed(line.split("  ")) for line in lines)
    files = {path.name: path.read_bytes() for path in (ROOT / "dist").iterdir() if path.name != "SHA256SUMS"}
    assert named == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_no_file_names_the_machine_that_built_it(arch: str) -> None:
    content = one_file(arch).read_bytes()
    assert str(ROOT).encode() not in content
    assert b"klog-release" not in content


def test_the_command_that_the_docs_show_checks_the_file_and_runs_it(tmp_path: Path) -> None:
    """Both lines, with cp in the place of scp and a shell in that of ssh.  A file that is another one does not run."""
    page = (ROOT / "docs" / "release.md").read_text()
    ((copied, remote),) = re.findall(r"^(sha256sum .*) broker-1:/tmp/\nssh broker-1 '(.*)'$", page, re.MULTILINE)
    host, data = tmp_path / "host", tmp_path / "data"
    host.mkdir()
    shutil.copytree(FIXTURES / "crash" / "flip-middle", data)
    shell(f"{copied.replace('scp', 'cp')} {host}/", ROOT / "dist")
    command = remote.replace("/tmp", str(host)).replace("/var/lib/kafka/data", str(data))
    done = shell(command, host, exit_code=4)
    assert done.stdout.endswith(run_klog("verify", data).stdout)
    with one_file_of(host).open("ab") as file:
        file.write(b"!")
    assert b"FAILED" in shell(command, host, exit_code=1).stdout


def one_file_of(folder: Path) -> Path:
    (found,) = folder.glob("klog-*")
    return found


def shell(command: str, cwd: Path, exit_code: int = 0) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(["bash", "-c", command], capture_output=True, cwd=cwd, check=False)
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done
