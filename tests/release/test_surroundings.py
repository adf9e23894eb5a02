"""Nothing around the one file changes its behaviour: variables, the directory it is started in, links, users, disks."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran, run_klog
from tests.release.root import NOBODY, WAY, Root, one_file, run
from tests.support.insight import unpack

pytestmark = pytest.mark.release
HOSTILE = {
    "PYTHONPATH": "/hostile",
    "PYTHONHOME": "/hostile",
    "PYTHONSTARTUP": "/hostile/start.py",
    "PYTHONINSPECT": "1",
    "PYTHONVERBOSE": "1",
    "PYTHONDEVMODE": "1",
    "PYTHONWARNINGS": "error",
    "PYTHONMALLOC": "debug",
    "PYTHONMALLOCSTATS": "1",
    "PYTHONHASHSEED": "no number",
    "PYTHONIOENCODING": "utf-16",
    "PYTHONUTF8": "0",
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONOPTIMIZE": "2",
    "PYTHONPROFILEIMPORTTIME": "1",
    "PYTHONDUMPREFS": "1",
    "MIMALLOC_VERBOSE": "3",
    "MIMALLOC_SHOW_STATS": "1",
    "LC_ALL": "xx_XX.nonsense",
}
STACK_HEADER = 0x6474E551
"""PT_GNU_STACK"""
PLANTED = ("sitecustomize.py", "usercustomize.py", "pyarrow.py", "encodings.py", "klog.py", "typer.py")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    made = Root(tmp_path_factory.mktemp("root"))
    unpack(made.folder)
    return made


@pytest.fixture(scope="module")
def usual(root: Root) -> Ran:
    found = root.run("dump", "/data", "--output", "jsonl")
    assert (found.exit_code, found.stderr, found.stdout.count(b"\n") > 100) == (0, b"", True)
    return found


def test_variables_change_nothing(root: Root, usual: Ran) -> None:
    assert root.run("dump", "/data", "--output", "jsonl", environment=WAY | HOSTILE) == usual


def test_what_lies_where_it_is_started_is_not_run(tmp_path: Path) -> None:
    """Else whoever may write to a directory could have code run by an administrator who looks into it."""
    for name in PLANTED:
        (tmp_path / name).write_text("raise SystemExit('planted')")
    (tmp_path / "klog._pth").write_text(".\nimport site\n")
    (tmp_path / "pyvenv.cfg").write_text(f"home = {tmp_path}\n")
    for words in (("--version", "--version"), ("export", str(FIXTURES / "modern"), "--to", "rows")):
        found = run([str(one_file()), *words], cwd=tmp_path)
        assert b"planted" not in found.stdout + found.stderr
        assert (found.exit_code, b"pyarrow" in found.stderr) == ((0, False) if words[0] == "--version" else (8, True))


@pytest.mark.strace
def test_it_looks_for_no_file_of_its_own_and_unpacks_nothing(tmp_path: Path) -> None:
    """The first start is as fast as any: no file is made, and none is sought that could be planted."""
    log = tmp_path / "calls"
    found = run(["strace", "-f", "-qq", "-e", "trace=%file", "-o", str(log), str(one_file()), "--version", "--version"])
    assert found.exit_code == 0
    calls = log.read_text().splitlines()
    paths = {path for call in calls[1:] for path in re.findall(r'"([^"]*)"', call)}
    assert all(path.startswith(("/proc/", "/sys/", "/etc/localtime", "/klog")) for path in paths), paths
    assert not [call for call in calls if re.search("O_WRONLY|O_RDWR|O_CREAT|memfd", call)]


def test_it_is_started_by_a_link(root: Root, usual: Ran) -> None:
    (root.folder / "linked").symlink_to("/klog")
    command = [word if word != "/klog" else "/linked" for word in root.command("dump", "/data", "--output", "jsonl")]
    assert run(command) == usual


def test_another_user_reads(root: Root, usual: Ran) -> None:
    """Who has no line in passwd, for there is none."""
    if os.geteuid():
        pytest.fail("only root may become another user")
    assert root.run("dump", "/data", "--output", "jsonl", user=NOBODY) == usual


def test_a_root_that_cannot_be_written_is_read(root: Root, usual: Ran) -> None:
    words = root.command("dump", "/data", "--output", "jsonl")
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && shift && exec "$@"'
    alone = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    assert run([*alone, "sh", "-c", mount, str(root.folder), "-", *words]) == usual


def test_many_threads_say_what_one_says(root: Root, usual: Ran) -> None:
    """musl gives threads small stacks, unless the program asks for more."""
    assert root.run("dump", "/data", "--output", "jsonl", "--jobs", "32") == usual
    wanted = run_klog("verify", root.folder / "data", "--deep")
    assert root.run("verify", "/data", "--deep", "--jobs", "32").exit_code == wanted.exit_code


def test_threads_have_as_much_stack_as_elsewhere() -> None:
    """musl would give them 128 KiB; it takes up to 8 MiB where the file's header asks for it."""
    with open(one_file(), "rb") as file:
        start = file.read(4096)
    (at,), (size, count) = struct.unpack_from("<Q", start, 32), struct.unpack_from("<HH", start, 54)
    headers = [struct.unpack_from("<II6Q", start, at + number * size) for number in range(count)]
    assert [memory >= 8 << 20 for kind, *_, memory, _ in headers if kind == STACK_HEADER] == [True]


@pytest.mark.strace
def test_what_is_read_keeps_its_access_time(tmp_path: Path) -> None:
    """O_NOATIME is asked for where Python has it: the one inside has it."""
    log = tmp_path / "calls"
    words = [str(one_file()), "verify", str(FIXTURES / "modern" / "zstd-0")]
    assert run(["strace", "-f", "-qq", "-e", "trace=open,openat", "-o", str(log), *words]).exit_code == 0
    opened = [call for call in log.read_text().splitlines() if "zstd-0/" in call]
    assert opened
    assert [call for call in opened if "O_NOATIME" not in call] == []


def test_a_change_without_a_home_ends(root: Root, tmp_path: Path) -> None:
    """Notes about a plan are written to the home of the repairing user.  A user without one has `/`."""
    wanted = root.run("recover", "/data", "--apply", "--quiet")
    assert (wanted.exit_code, wanted.stderr) == (0, b"")
