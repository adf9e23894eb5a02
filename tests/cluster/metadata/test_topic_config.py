"""A topic's settings: the order of sources, the values of texts, and Kafka's table."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.cluster.metadata import metadata_loader as loader
from klog.cluster.metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE
from klog.cluster.metadata.topic_config import _INTERNAL, _KNOWN, Setting, SettingOrigin, TopicConfig
from klog.data_dir.log_dir import LogDir

from tests.brokers import kafka
from tests.conftest import FIXTURES
from tests.support.metadata_logs import MetadataLog, config, topic

MODERN = LogDir(str(FIXTURES / "modern"))


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    """A log dir of node 1, with a topic t."""
    log = MetadataLog(tmp_path)
    log.add(topic("t", 1))
    return log


def settings(log: MetadataLog, **options: str) -> TopicConfig:
    return TopicConfig(LogDir(str(log.log_dir)), options)


def test_each_source_counts_more_than_the_ones_after_it(log: MetadataLog) -> None:
    """The broker's order; an option has precedence."""
    name, synonym = "index.interval.bytes", "log.index.interval.bytes"
    assert settings(log).value("t", name) == Setting(4096, SettingOrigin.DEFAULT, name)
    log.add(config(BROKER_RESOURCE, "", synonym, "1"), config(BROKER_RESOURCE, "2", synonym, "9"))
    assert settings(log).value("t", name) == Setting(1, SettingOrigin.BROKER, synonym)
    log.add(config(BROKER_RESOURCE, "1", synonym, "2"))
    assert settings(log).value("t", name) == Setting(2, SettingOrigin.BROKER, synonym)
    log.add(config(TOPIC_RESOURCE, "t", name, "3"))
    assert settings(log).value("t", name) == Setting(3, SettingOrigin.TOPIC, name)
    assert (
        settings(log).value("u", name) == settings(log).value(None, name) == Setting(2, SettingOrigin.BROKER, synonym)
    )
    given = TopicConfig(LogDir(str(log.log_dir)), {name: "4"})
    assert given.value("t", name) == Setting(4, SettingOrigin.OPTION, name)
    assert given.value("t", "segment.bytes") == Setting(1 << 30, SettingOrigin.DEFAULT, "segment.bytes")


def test_without_a_log_dir_or_a_metadata_log_there_are_defaults() -> None:
    for where in (None, LogDir(str(FIXTURES / "legacy"))):
        known = TopicConfig(where)
        assert known.metadata is None
        assert known.value("t", "cleanup.policy") == Setting(("delete",), SettingOrigin.DEFAULT, "cleanup.policy")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", "compact", ("compact",)),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "Compact", ("compact",)),
        ("cleanup.policy", "", ()),
        ("min.cleanable.dirty.ratio", "0.01", 0.01),
        ("preallocate", "TRUE", True),
        ("unclean.leader.election.enable", "false", False),
        ("segment.bytes", " 32768 ", 32768),
        ("retention.ms", "-1", -1),
        ("retention.bytes", "-5", -5),
        ("max.compaction.lag.ms", "9223372036854775807", 2**63 - 1),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("compression.type", "zstd", "zstd"),
    ],
)
def test_texts_have_the_values_that_they_have_to_kafka(log: MetadataLog, name: str, text: str, value: object) -> None:
    log.add(config(TOPIC_RESOURCE, "t", name, text))
    assert settings(log).value("t", name) == Setting(value, SettingOrigin.TOPIC, name)  # type: ignore[arg-type]
    assert settings(log, **{name: text}).value("t", name).value == value


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("segment.bytes", "13", "a whole number from 14 to 2147483647"),
        ("segment.bytes", "2147483648", "a whole number from 14 to 2147483647"),
        ("index.interval.bytes", "4k", "a whole number from 0 to 2147483647"),
        ("index.interval.bytes", "4_096", "a whole number from 0 to 2147483647"),
        ("index.interval.bytes", "٤", "a whole number from 0 to 2147483647"),
        ("index.interval.bytes", "1" * 9999, "a whole number from 0 to 2147483647"),
        ("segment.ms", "0", "a whole number from 1 to 9223372036854775807"),
        ("retention.ms", "-2", "a whole number from -1 to 9223372036854775807"),
        ("min.cleanable.dirty.ratio", "1.1", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("preallocate", "yes", "true or false"),
        ("cleanup.policy", "compacted", "a list, with commas, of compact and delete"),
        ("cleanup.policy", "compact,", "a list, with commas, of compact and delete"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
    ],
)
def test_a_text_that_is_no_value_counts_as_not_there(log: MetadataLog, name: str, text: str, expected: str) -> None:
    """No broker would have accepted it: it is damage; as an option it is a mistake, and reported."""
    log.add(
        config(TOPIC_RESOURCE, "t", name, text), *(config(BROKER_RESOURCE, "", b, text) for b in _KNOWN[name].broker)
    )
    assert settings(log).value("t", name) == Setting(_KNOWN[name].default, SettingOrigin.DEFAULT, name)
    with pytest.raises(UsageError, match=f"^{name}=.*: expected {expected}"):
        settings(log, **{name: text})


def test_the_metadata_log_may_be_in_another_log_dir(log: MetadataLog, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A node may keep it on a disk of its own, and a broker alone has none; brokers' settings depend on this one."""
    log.add(config(TOPIC_RESOURCE, "t", "cleanup.policy", "compact"), config(BROKER_RESOURCE, "7", "log.roll.ms", "5"))
    data = tmp_path_factory.mktemp("data")
    (data / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=x\n")
    elsewhere = TopicConfig(LogDir(str(data)), metadata=LogDir(str(log.log_dir)))
    assert elsewhere.value("t", "cleanup.policy").words == ("compact",)
    assert elsewhere.value("t", "segment.ms") == Setting(5, SettingOrigin.BROKER, "log.roll.ms")


def test_another_log_dir_without_a_metadata_log_or_of_another_cluster_is_refused(
    log: MetadataLog, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Settings of a topic that only has the same name would be worse than none."""
    data, other = tmp_path_factory.mktemp("data"), LogDir(str(log.log_dir))
    with pytest.raises(UsageError, match="no __cluster_metadata here"):
        TopicConfig(other, metadata=LogDir(str(data)))
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=another\n")
    with pytest.raises(UsageError, match=r"of cluster x, but .* is of another"):
        TopicConfig(LogDir(str(data)), metadata=other)


def test_an_unknown_option_is_refused_with_near_misses() -> None:
    with pytest.raises(UsageError, match=r"segment.byte is an unknown setting; did you mean segment.bytes"):
        TopicConfig(None, {"segment.byte": "1"})
    with pytest.raises(KeyError):
        TopicConfig().value("t", "segment.byte")


@pytest.mark.parametrize(
    ("texts", "name", "found"),
    [
        ({"log.roll.hours": "2"}, "segment.ms", Setting(7_200_000, SettingOrigin.BROKER, "log.roll.hours")),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, "segment.ms", Setting(5, SettingOrigin.BROKER, "log.roll.ms")),
        (
            {"log.retention.minutes": "3"},
            "retention.ms",
            Setting(180_000, SettingOrigin.BROKER, "log.retention.minutes"),
        ),
        ({"log.retention.hours": "-1"}, "retention.ms", Setting(-1, SettingOrigin.BROKER, "log.retention.hours")),
        ({"log.preallocate": "true"}, "preallocate", Setting(True, SettingOrigin.BROKER, "log.preallocate")),
        ({"message.max.bytes": "7"}, "max.message.bytes", Setting(7, SettingOrigin.BROKER, "message.max.bytes")),
        ({"log.roll.hours": "2147483648"}, "segment.ms", Setting(604_800_000, SettingOrigin.DEFAULT, "segment.ms")),
        ({"retention.ms": "7"}, "retention.ms", Setting(604_800_000, SettingOrigin.DEFAULT, "retention.ms")),
    ],
)
def test_brokers_have_names_and_units_of_their_own(
    log: MetadataLog, texts: dict[str, str], name: str, found: Setting
) -> None:
    log.add(*(config(BROKER_RESOURCE, "", key, text) for key, text in texts.items()))
    assert settings(log).value("t", name) == found


def test_the_internal_segment_size_counts_more(log: MetadataLog) -> None:
    """Since 4.0 tests can make segments small only by it; the broker takes it before segment.bytes."""
    log.add(config(TOPIC_RESOURCE, "t", "segment.bytes", "1048576"))
    assert settings(log).value("t", "segment.bytes").number == 1048576
    log.add(config(TOPIC_RESOURCE, "t", "internal.segment.bytes", "20000"))
    assert settings(log).value("t", "segment.bytes") == Setting(20000, SettingOrigin.TOPIC, "internal.segment.bytes")


@pytest.mark.parametrize("name", [name for name in _INTERNAL if name != "__cluster_metadata"])
def test_internal_topics_are_as_a_real_broker_created_them(name: str) -> None:
    """Without a metadata log klog must assume for them what brokers ask for when they create them."""
    assumed, known = TopicConfig(), TopicConfig(MODERN)
    assert known.value(name, "cleanup.policy").origin is SettingOrigin.TOPIC
    for setting in _KNOWN:
        assert assumed.value(name, setting).value == known.value(name, setting).value, setting
        assert assumed.value(name, setting).origin is SettingOrigin.DEFAULT


def test_an_internal_topic_whose_settings_were_taken_back_is_like_any_other(log: MetadataLog) -> None:
    assert settings(log).value("__consumer_offsets", "cleanup.policy").words == ("compact",)
    log.add(topic("__consumer_offsets", 2))
    assert settings(log).value("__consumer_offsets", "cleanup.policy").words == ("delete",)


def test_what_brokers_have_for_topics_is_not_for_the_metadata_log(log: MetadataLog) -> None:
    log.add(
        config(BROKER_RESOURCE, "", "log.segment.bytes", "5000"), config(BROKER_RESOURCE, "", "log.retention.ms", "5")
    )
    assert settings(log).value("t", "segment.bytes").number == 5000
    assert settings(log).value("__cluster_metadata", "segment.bytes").number == 1 << 30
    assert settings(log).value("__cluster_metadata", "retention.ms").number == -1


def test_the_metadata_log_is_read_once_and_only_when_asked_for(
    log: MetadataLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large cluster's takes seconds, a log dir has thousands of partitions."""
    reads = []
    once = loader.read_metadata
    monkeypatch.setattr(loader, "read_metadata", lambda log_dir: reads.append(1) or once(log_dir))  # type: ignore[func-returns-value]
    known = settings(log, **{"segment.bytes": "99"})
    assert known.value("t", "segment.bytes").number == 99
    assert not reads
    for name in _KNOWN:
        known.value("t", name)
    assert len(reads) == 1


@pytest.mark.kafka
def test_the_table_is_kafkas() -> None:
    program = kafka.program(kafka.NEWEST, "TopicSettings")
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=120)
    rows = {name: rest for name, *rest in (line.split("\t") for line in done.stdout.splitlines())}
    assert len(rows) > 30
    for name, known in _KNOWN.items():
        default, *synonyms = rows[name]
        assert known.kind.read(default) == known.default, name
        assert [f"{synonym}*{unit_ms}" for synonym, unit_ms in known.broker.items()] == synonyms, name
        assert known.instead is None or known.instead in rows
