"""Observed work of brokers' cleaners: log dirs before and after, the beginning of each round, and the settings.

recorded = Recorded("v4.3.1", 1)
recorded.begun                    # (ms, partition) of each round
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple

from klog.change.plan.draft import backup_places, make_plan, plan_id
from klog.change.plan.executor import apply
from klog.change.plan.model import STAGED
from klog.change.plan.staging import Staging
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.compact.compaction import CompactionRun, CompactOptions
from klog.commands.compact.log_cleaner import CleanerOptions, CompactionResult
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import Selection

from tests.conftest import CORPORA
from tests.support.metadata_logs import MetadataLog, config, topic
from tests.support.power import HastyDisk

_TOPIC, _BROKER = 2, 4
_BEGINNING = re.compile(r"^(\S+ \S+) \[.*Beginning cleaning of log ([^\s.]+)\.?$", re.MULTILINE)
Topics = Mapping[str, Mapping[str, str]]


class Recorded(NamedTuple):
    """One round trip of the corpora: *version* is the broker's, *number* 1 to 3."""

    version: str
    number: int

    @property
    def home(self) -> Path:
        """Return its directory in the corpora."""
        return CORPORA / "compaction" / self.version

    def archive(self, side: str) -> str:
        """Return the name of an archive, *side* being `before` or `after`."""
        return f"compaction/{self.version}/{side}{'' if self.number == 1 else self.number}.tar.gz"

    @property
    def log(self) -> str:
        """Return the cleaner's log between `before` and `after`."""
        text = (self.home / "golden/cleaner.log").read_text()
        return re.split(r"^== between .*\n", text, flags=re.MULTILINE)[self.number]

    @property
    def begun(self) -> list[tuple[int, str]]:
        """When, in ms, the cleaner began with which partition: horizons follow from it."""
        found = []
        for time, partition in _BEGINNING.findall(self.log):
            moment = datetime.strptime(time.replace(",", ".") + "000+0000", "%Y-%m-%d %H:%M:%S.%f%z")
            since = moment - datetime(1970, 1, 1, tzinfo=UTC)
            found.append((round(since.total_seconds() * 1000), partition))
        return found

    @property
    def broker(self) -> dict[str, str]:
        """Return the broker's server.properties."""
        return dict(self._settings["broker"])

    @property
    def topics(self) -> dict[str, dict[str, str]]:
        """The topics' settings when the cleaner ran."""
        topics = {name: dict(texts) for name, texts in self._settings["topics"].items()}
        topics["switched"]["cleanup.policy"] = "compact"  # its settings before the cleaner ran
        return topics

    @property
    def _settings(self) -> dict[str, Mapping[str, dict[str, str]]]:
        found: dict[str, Mapping[str, dict[str, str]]] = json.loads((self.home / "settings.json").read_text())
        return found


class Compactor:
    """Do with klog the same as a broker's cleaner does with *log_dir*: a partition at a time, through plan and
    apply."""

    def __init__(self, log_dir: Path, choices: CleanerOptions, topics: Topics, broker: Mapping[str, str] = {}) -> None:
        self.log_dir, self._choices, self._disk = log_dir, choices, HastyDisk()
        with tempfile.TemporaryDirectory() as folder:
            self._settings = TopicConfig(_metadata(Path(folder) / "metadata", topics, broker))
            assert self._settings.metadata is not None  # read, while it is there

    def look(self, now_ms: int, directory: str | None = None) -> CompactionRun:
        """Return what may be compacted at *now_ms*, of one partition or of all."""
        return self._cleaning(now_ms, directory, Staging(None, self._disk))

    def _cleaning(self, now_ms: int, directory: str | None, staging: Staging) -> CompactionRun:
        opened = LogDir(str(self.log_dir))
        partitions = [one for one in opened.partitions if directory in (None, one.directory)]
        wishes = CompactOptions(now_ms, everything=False, choices=self._choices)
        return CompactionRun([Selection(opened, partitions)], [staging], [self._settings], wishes, self._disk)

    def compact(self, now_ms: int, directory: str) -> CompactionResult:
        """Compact a partition, which is eligible at *now_ms*."""
        log_dirs = [str(self.log_dir)]
        names = (plan_id("compact", now_ms) for _ in count())  # of a recorded second: two in it may be the same
        name = next(one for one in names if not os.path.exists(backup_places(one, log_dirs)[0]))
        backups = backup_places(name, log_dirs)
        cleaning = self._cleaning(now_ms, directory, Staging(f"{backups[0]}/{STAGED}", self._disk))
        assert [one.partition.directory for one in cleaning.eligible] == [directory]
        cleaning.run()
        plan = make_plan(name, "klog compact", log_dirs, backups, cleaning.drafts, now_ms)
        if plan.actions:
            apply(plan, self._disk)
        (outcome,) = cleaning.outcomes
        assert outcome.compacted is not None, outcome
        return outcome.compacted

    def all_of(self, begun: Iterable[tuple[int, str]]) -> None:
        """Compact the partitions that a broker has compacted, at the same times."""
        for now_ms, directory in begun:
            self.compact(now_ms, directory)


def _metadata(folder: Path, topics: Topics, broker: Mapping[str, str]) -> LogDir:
    """Write a metadata log with all these settings, from any source."""
    log = MetadataLog(folder)
    for number, (name, texts) in enumerate(topics.items(), 1):
        log.add(topic(name, number), *(config(_TOPIC, name, key, text) for key, text in texts.items()))
    for key, text in broker.items():
        log.add(config(_BROKER, "", key, text))
    return LogDir(str(folder))
