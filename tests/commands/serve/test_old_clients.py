"""Message sets from before Kafka 0.11, and Java's clients of then and now: a broker on the data, and its disk alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.brokers import clients, kafka
from tests.commands.serve.readers import CONSOLES, printed, with_console
from tests.commands.serve.serving import Serving
from tests.conftest import FIXTURES, writable_copy

pytestmark = pytest.mark.kafka

LEGACY = FIXTURES / "legacy"
TOPICS = sorted(path.name.removesuffix("-0") for path in LEGACY.glob("*-0"))
RECORDS = 3960
TIME_MS = 1_750_000_000_500
TIMES = (-2, -1, TIME_MS)


@dataclass(frozen=True)
class Answers:
    """The output of the tools of one version: all records, as sorted lines, and offsets by time."""

    records: list[bytes]
    offsets: dict[int, list[bytes]]


def ask(version: str, bootstrap: str, who: str) -> Answers:
    """Ask a broker or a disk; *who* is the group's name."""
    records = with_console(version, bootstrap, f"{who}-{version}")
    offsets = {}
    for time_ms in TIMES:
        if version == kafka.NEWEST:
            tool = (
                "org.apache.kafka.tools.GetOffsetShell",
                "--bootstrap-server",
                bootstrap,
                "--topic",
                ".*-.*|changing",
            )
        else:
            tool = ("kafka.tools.GetOffsetShell", "--broker-list", bootstrap, "--topic", "changing")
        offsets[time_ms] = printed(version, *tool, "--time", str(time_ms))
    return Answers(records, offsets)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answers]:
    """A broker of 2.8.2 on a copy: the last line that reads such data without a word."""
    cluster = kafka.Cluster(kafka.LEGACY, tmp_path_factory.mktemp("old"))
    writable_copy(LEGACY, cluster.data)
    (cluster.data / "meta.properties").unlink()  # its ZooKeeper is lost: the data joins a cluster of its own
    with cluster:
        clients.create(cluster.bootstrap, {topic: {} for topic in TOPICS})
        return {version: ask(version, cluster.bootstrap, "broker") for version in CONSOLES}


@pytest.mark.parametrize("version", CONSOLES)
def test_java_is_handed_what_a_broker_of_then_handed_it(broker: dict[str, Answers], version: str) -> None:
    """v0, v1, all their codecs, and partitions in which the format changed: every record, and its offsets by time."""
    with Serving(LEGACY) as disk:
        found = ask(version, disk.bootstrap, "disk")
    assert found == broker[version]


def test_the_tools_have_something_to_tell(broker: dict[str, Answers]) -> None:
    """Two empty answers are equal too."""
    offsets = broker[kafka.NEWEST].offsets
    assert len(offsets[-1]) == len(TOPICS)
    assert sum(int(line.rsplit(b":", 1)[1]) for line in offsets[-1]) == RECORDS
    assert offsets[-2] != offsets[TIME_MS] != offsets[-1]
    assert broker[kafka.LEGACY].offsets[TIME_MS] == [b"changing:0:140"]
    for answers in broker.values():
        assert len(answers.records) >= RECORDS
