"""Brokers that get a tier attached, and what their consumers must receive."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.brokers import clients
from tests.brokers.tiered import LEVELS, TASKS_S, TieredCluster, objects, wait_until
from tests.conftest import run_klog, writable_copy
from tests.support.tiers import Situation

Image = Callable[[str], Path]
Offsets = dict[str, list[int]]
RLMM = "__remote_log_metadata"
_MOST_BYTES = 500  # of a record: segments are small


class Attached:
    """A broker's disk and a tier in a folder, and what `klog remote attach` told."""

    def __init__(self, folder: Path, data: Path, tier: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.data, self.tier = writable_copy(data, folder / "data"), writable_copy(tier, folder / "tier")
        self.before, self.backup = objects(self.tier), ""

    def plan(self, *words: object, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """Run the command, and return its answer."""
        done = run_klog("remote", "attach", "--remote", self.tier, "--to", self.data, "-o", "json", *words)
        assert done.exit_code in codes, done
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def attach(self, *words: object, codes: tuple[int, ...] = (0,)) -> dict[str, dict[str, Any]]:
        """Carry it out; return what was attached, by partition.  The tier is as before, and everything checks clean."""
        found = self.plan("--apply", *words, codes=codes)
        self.backup = found["backup"]
        assert objects(self.tier) == self.before
        attached = {f"{one['topic']}-{one['partition']}": one for one in found["attached"]}
        told = json.loads(run_klog("doctor", self.data, "-o", "json").stdout)
        fates = {f"{one['topic']}-{one['partition']}": one["fate"] for one in told["partitions"]}
        assert told["starts"]
        assert {fates[name] for name in attached} == {"serves"}, told
        checked = run_klog("remote", "verify", self.data, "--remote", self.tier, "--deep", "-o", "json")
        problems = [one for one in json.loads(checked.stdout)["findings"] if one["severity"] == "damage"]
        assert not [one for one in problems if f"{one['topic']}-{one['partition']}" in attached], problems
        return attached


def told(found: Situation, partition: str, first: int, end: int) -> Offsets:
    """Return the offsets that clients of the lost cluster got, from *first* to below *end*, by isolation level."""
    truth = found.clients[partition]
    every = {"read_uncommitted": [one[0] for one in truth["uncommitted"]], "read_committed": truth["committed"]}
    return {level: [one for one in offsets if first <= one < end] for level, offsets in every.items()}


class Serving:
    """A running broker, and the records that were sent to it."""

    def __init__(self, cluster: TieredCluster, attached: Mapping[str, dict[str, Any]], wanted: Mapping[str, Offsets]):
        self.cluster, self.attached = cluster, attached
        self.wanted = {name: {level: list(offsets) for level, offsets in one.items()} for name, one in wanted.items()}

    def check(self) -> None:
        """Each partition has exactly these records in both levels, and nothing holds the last stable offset back."""
        for name, wanted in self.wanted.items():
            topic, _, number = name.rpartition("-")
            ends = self.cluster.ends(topic, int(number))
            assert ends.earliest == self.attached[name]["remote_start_offset"], (name, ends)
            assert ends.stable == ends.latest >= self.attached[name]["log_end_offset"], (name, ends)
            for level in LEVELS:
                found = [one.offset for one in self.cluster.consume(topic, int(number), level)]
                assert found == wanted[level], (name, level)

    def send(self, count: int = 60) -> None:
        """An idempotent and a transactional producer send records, which consumers get behind the others."""
        for name, wanted in self.wanted.items():
            topic, _, number = name.rpartition("-")
            for more in ({"enable_idempotence": True}, {"transaction": f"more-{name}"}):
                given = [one for one in clients.records(f"{name}{more}", count) if len(one.value or b"") < _MOST_BYTES]
                alone = {"partition": int(number), "batch_num_messages": 1}
                clients.with_librdkafka(self.cluster.bootstrap, topic, "none", given, **alone, **more)
            for level in LEVELS:
                found = [one.offset for one in self.cluster.consume(topic, int(number), level)]
                assert found[: len(wanted[level])] == wanted[level], (name, level)
                assert len(found) > len(wanted[level])
                wanted[level] = found

    def await_copies(self) -> None:
        """Return when each partition has more segments in the tier than were attached."""
        for name, one in self.attached.items():
            folder = f"{name}-{one['topic_id']}"
            place = self.cluster.tier / "kafka-tiered-storage" / folder
            wait_until(lambda place=place, one=one: len(list(place.glob("*.log"))) > one["segments"] + 1)  # type: ignore[misc]

    def is_quiet(self) -> None:
        """Nothing was set aside, made anew or cut."""
        log = self.cluster.log()
        for words in ("marked stray", "Loaded stray", "Deleting all segments", "is offline", "Corruption found"):
            assert words not in log, words
        assert not list(self.cluster.data.glob("*-stray"))


def proven(
    place: Attached,
    version: str,
    attached: Mapping[str, dict[str, Any]],
    wanted: Mapping[str, Offsets],
    *,
    again: bool = False,
    settings: dict[str, str] | None = None,
) -> Serving:
    """Start a broker; it serves, takes producers and copies, and no object goes.

    *again*: also after another start, and after a kill.
    """
    cluster = TieredCluster(version, place.folder, place.tier, settings=settings)
    serving = Serving(cluster, attached, wanted)
    with cluster:
        time.sleep(TASKS_S)
        serving.check()
        serving.send()
        serving.await_copies()
        serving.check()
        if again:
            cluster.stop()
            cluster.start()
            serving.check()
            cluster.kill()
            cluster.start()
            serving.send(10)
            serving.check()
        serving.is_quiet()
    after = objects(place.tier)
    assert {key: after.get(key) for key in place.before} == place.before
    return serving


def remove(data: Path, *patterns: str) -> None:
    """Remove directories from a log dir."""
    for pattern in patterns:
        for path in list(data.glob(pattern)):
            shutil.rmtree(path)
