"""Answers of real brokers, damaged on their way to `klog follow`: it ends soon, and its copy is a log."""

from __future__ import annotations

import random
import shutil
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.formats.structs.schema import Data
from klog.formats.wire_messages import read_request

from tests.commands.follow.client.fake_broker import FakeBroker, Peer, answer_bytes
from tests.commands.follow.client.recorded import TOPIC, VERSIONS, answers, everything, played
from tests.commands.follow.client.test_mutated_answers import mutated
from tests.commands.follow.scripted import log_of
from tests.commands.follow.test_hostile import CODES, outside
from tests.conftest import Ran

Klog = Callable[..., Ran]
SECONDS = 60
LATEST = 12
"""How many answers a run gets before it ends, about: one of so many is damaged."""


class Replay:
    """A broker that gives each request the recorded answer of its API; but number *damaged* through *change*.

    Answers name the broker's port.  A fetch behind the records gets none.  *answered*: how many answers there were;
    *hit*: the API of the damaged one.
    """

    def __init__(self, version: str, damaged: int, change: Callable[[bytes], bytes]) -> None:
        self._known, self._damaged, self._change = answers(version), damaged, change
        self.answered, self.hit = 0, -1
        self.broker = FakeBroker(self._talk)

    def _talk(self, peer: Peer) -> None:
        while True:
            (size,) = struct.unpack(">i", peer.read(4))
            data = peer.read(size)
            key, version, number = struct.unpack_from(">hhi", data)
            answer = self._answer(key, version, number, data)
            self.answered += 1
            if self.answered - 1 == self._damaged:
                self.hit, answer = key, self._change(answer)
            peer.send(answer)

    def _answer(self, key: int, version: int, number: int, data: bytes) -> bytes:
        request = read_request(data, 1 << 20)
        if request.api.name == "Fetch" and not _is_first(request.body or {}):
            time.sleep(0.05)
            return answer_bytes(request, {"sessionId": (request.body or {})["sessionId"], "responses": []})
        # A damaged list of versions may lead to requests that were not recorded.
        like = [found for (known, _), found in self._known.items() if known == key]
        answer = bytearray(self._known.get((key, version), like[0] if like else b"\0" * 8))
        struct.pack_into(">i", answer, 0, number)
        at = answer.find(b"localhost")
        if at >= 0:
            struct.pack_into(">i", answer, at + len(b"localhost"), self.broker.port)
        return struct.pack(">i", len(answer)) + answer


def _is_first(body: Data) -> bool:
    return any(row["fetchOffset"] == 0 for topic in body["topics"] for row in topic["partitions"])


def wanted(version: str) -> bytes:
    """Return the records that were recorded."""
    ((row,),) = (one["partitions"] for one in everything(played(answers(version)))[-1]["responses"])
    return bytes(row["records"])


def followed(klog: Klog, replay: Replay, copy: Path) -> Ran:
    with replay.broker:
        began = time.monotonic()
        words = ("--topic", TOPIC, "--partition", "0", "--timeout", "1s", "--max-wait", "100ms")
        ran = klog("follow", replay.broker.bootstrap, "--to", copy, *words)
        assert time.monotonic() - began < SECONDS
        assert not replay.broker.failed
    return ran


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_answers_make_a_copy(version: str, klog: Klog, tmp_path: Path) -> None:
    """An answer that is damaged below is right before."""
    replay = Replay(version, -1, bytes)
    ran = followed(klog, replay, tmp_path / "copy")
    assert (ran.exit_code, ran.stderr) == (0, b"")
    assert log_of(tmp_path / "copy", f"{TOPIC}-0") == wanted(version)
    assert replay.answered >= LATEST - 3


@pytest.mark.parametrize("seconds", [pytest.param(6, id="some"), pytest.param(600, marks=pytest.mark.long, id="all")])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_damaged_answer_does_no_harm(version: str, seconds: float, klog: Klog, tmp_path: Path) -> None:
    """Any of those of a run: one of the exit codes, nothing outside the copy, nothing in it that no log may hold."""
    codes, right, turn = Counter[int](), wanted(version), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until or turn < 3:
        chance, turn = random.Random(f"{version} {turn}"), turn + 1
        replay = Replay(version, chance.randrange(LATEST), lambda data, chance=chance: mutated(data, chance))  # type: ignore[misc]
        folder = tmp_path / "in"
        folder.mkdir()
        ran = followed(klog, replay, folder / "copy")
        codes[ran.exit_code] += 1
        assert ran.exit_code in CODES, (turn, ran)
        assert b"Traceback" not in ran.stderr, turn
        assert outside(folder) == set(), turn
        assert {one.name for one in tmp_path.iterdir()} == {"in"}, turn
        if replay.hit != 1:  # a fetch
            assert right.startswith(log_of(folder / "copy", f"{TOPIC}-0")), turn
        if (folder / "copy").exists():
            checked = klog("verify", folder / "copy", "--deep")
            assert checked.exit_code == 0, (turn, checked.stdout.decode())
        shutil.rmtree(folder)
    assert codes[0]
