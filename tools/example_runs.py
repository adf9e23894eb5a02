"""Runs of the examples that the help shows, over copies of fixtures/: for the site's reference and for tests."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from klog_cli.command_catalog import read
from klog_cli.examples import EXAMPLES

from tools.terminals import FIXTURES, command, environment

NOT_RUN = {
    "serve": "runs until it is stopped",
    "browse": "needs a terminal",
    "follow": "needs a cluster",
    "completion": "prints a script",
    **{one.name: "starts Spark" for one in read().walk() if one.words[:1] == ("spark",)},
}
"""Commands whose examples run elsewhere, or nowhere."""
COPIES = {"data": "modern", "old": "modern", **{f"b{node}": f"replicas/quorum/broker-{node}" for node in (1, 2, 3)}}
OTHER_COPIES = {"replicas": {f"b{node}": f"replicas/split/broker-{node}" for node in (1, 2, 3)}}
ARCHIVES = {"remote": "tiered.tar.xz"}
"""Fixtures with more to show, for commands that begin with a word; an archive has `data` and others at its top."""
NAMES = {"orders-0": "plain-1", "orders": "plain", "key-1": "after-restart-5"}
"""Names in the examples, and names that the fixtures have."""
PREPARED = {
    "apply": "klog recover /data --save-plan plan.json",
    "undo": "klog recover /data --apply",
    "plans": "klog recover /data --apply",
}
"""Commands whose examples need an earlier one."""
LONGEST, SHOWN = 24, 12
"""Lines of an output that is shown whole, and those that are shown of a longer one."""


class Example(NamedTuple):
    """An example of the help: its purpose, the line that was run, and the output; None if it is not run."""

    about: str
    line: str
    output: str | None


def copies(name: str) -> dict[str, str]:
    """Return the folders of fixtures/ that the examples of a command find as /data, /old, and /b1 to /b3."""
    return COPIES | OTHER_COPIES.get(name.split()[0], {})


def make_place(folder: str, command_name: str) -> None:
    """Put what the examples of a command name into *folder*: log dirs and files."""
    archive = ARCHIVES.get(command_name.split()[0])
    if archive is not None:
        shutil.unpack_archive(os.path.join(FIXTURES, archive), folder)
    for name, source in () if archive is not None else copies(command_name).items():
        shutil.copytree(os.path.join(FIXTURES, source), os.path.join(folder, name), copy_function=shutil.copyfile)
    shutil.copyfile(os.path.join(FIXTURES, "replicas/simulate/quota.json"), os.path.join(folder, "events.json"))
    with open(os.path.join(folder, "orders.jsonl"), "w", encoding="utf-8") as file:
        file.write('{"topic":"orders","key":"a","value":"b"}\n')


def for_fixtures(line: str) -> str:
    """Return the line of an example with names that the fixtures have."""
    if "orders.jsonl" in line:
        return line
    return re.sub("|".join(map(re.escape, NAMES)), lambda found: NAMES[found[0]], line)


def words_of(line: str, folder: str) -> list[str]:
    """Return the words after `klog` in the line of an example, with *folder* as the root of its paths."""
    _, *words = shlex.split(for_fixtures(line))
    return [f"{folder}{word}" if word.startswith("/") else word for word in words]


def prepare(name: str, folder: str) -> None:
    """Make something that the command can repair, carry out, list or undo."""
    if name in ("recover", *PREPARED):
        os.unlink(f"{folder}/data/plain-1/{0:020}.index")
    if name in PREPARED:
        _output(PREPARED[name], folder)
    if name.startswith("schemas "):
        with open(f"{folder}/schemas.jsonl", "w", encoding="utf-8") as file:
            file.writelines(_schema_records())
        _output("klog write /schemas.jsonl --to /registry", folder)
        shutil.copytree(f"{folder}/registry/_schemas-0", f"{folder}/data/_schemas-0")


def _schema_records() -> Iterator[str]:
    """Yield the records of a small registry as JSON lines."""
    money = '{"type":"record","name":"com.shop.Money","fields":[{"name":"cents","type":"long"}]}'
    order = '{"type":"record","name":"com.shop.Order","fields":[{"name":"total","type":"com.shop.Money"}]}'
    refers = [{"name": "com.shop.Money", "subject": "money", "version": 1}]
    for subject, version, number, text in (("money", 1, 19, money), (f"{NAMES['orders']}-value", 1, 20, order)):
        key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
        value = {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False}
        value |= {"references": refers} if text is order else {}
        yield json.dumps({"topic": "_schemas", "key": json.dumps(key), "value": json.dumps(value)}) + "\n"


def run_all() -> dict[str, list[Example]]:
    """Return the examples of every command, run."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(EXAMPLES, pool.map(lambda name: list(_run(name)), EXAMPLES), strict=True))


def _run(name: str) -> Iterator[Example]:
    if name in NOT_RUN:
        yield from (Example(about, line, None) for about, line in EXAMPLES[name])
        return
    with tempfile.TemporaryDirectory(prefix="klog") as folder:
        make_place(folder, name)
        prepare(name, folder)
        for about, line in EXAMPLES[name]:
            is_for_a_shell = " > " in line
            yield Example(about, for_fixtures(line), None if is_for_a_shell else _output(line, folder))


def _output(line: str, folder: str) -> str:
    """Return the text that klog prints, errors included.  Raises RuntimeError if it fails."""
    done = subprocess.run(
        command(*words_of(line, folder)), cwd=folder, env=environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1, 4):
        raise RuntimeError(f"{line}: {done.stdout}")
    return shortened(done.stdout.replace(folder, ""))


def shortened(text: str) -> str:
    """Return *text*, or the beginning of a long one with a line `…`."""
    lines = text.splitlines()
    return "\n".join(lines if len(lines) <= LONGEST else [*lines[:SHOWN], "…"])
