"""`meta.properties`, `quorum-state` and `.kafka_cleanshutdown`."""

from __future__ import annotations

import pytest
from klog.formats.checkpoint import Malformed
from klog.formats.properties import (
    CleanShutdown,
    MetaProperties,
    QuorumState,
    read_clean_shutdown,
    read_meta_properties,
    read_properties,
    read_quorum_state,
    write_clean_shutdown,
)

from tests.conftest import FIXTURES


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", {}),
        (b"#\n#Sat Nov 21 05:10:19 UTC 2026\nnode.id=1\n", {"node.id": "1"}),
        (b"! a comment\n  # another\n\n \t \na=b", {"a": "b"}),
        (b"a = b\nc:d\ne f\n g  :  h \n", {"a": "b", "c": "d", "e": "f", "g": "h "}),
        (b"a==b\nc =:d\ne\nf=\n", {"a": "=b", "c": ":d", "e": "", "f": ""}),
        (b"a\\=b=c\\\\\nd\\ e=\\t\\n\\q", {"a=b": "c\\", "d e": "\t\nq"}),
        (b"a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        (b"a=1\\\n#2", {"a": "1#2"}),
        (b"a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        (b"a=\\u0041\\u00e9\\ud83d\\ude00", {"a": "A\xe9\U0001f600"}),
        (b"a=\xe9", {"a": "\xe9"}),
        (b"a=1\ra=2\r\n", {"a": "2"}),
        (b"a=ends in a backslash\\", {"a": "ends in a backslash"}),
    ],
)
def test_properties_are_read_as_java_reads_them(content: bytes, expected: dict[str, str]) -> None:
    assert read_properties(content) == expected


@pytest.mark.parametrize("content", [b"a=1\nb=\\u12", b"a=1\nb=\\u12g4", b"a=1\nb\\u=2", b"a=1\nb=\\u\\u0041"])
def test_a_broken_escape_is_malformed(content: bytes) -> None:
    found = read_properties(content)
    assert isinstance(found, Malformed)
    assert found.line == 2


def test_a_kraft_nodes_meta_properties() -> None:
    content = b"#\nnode.id=1\ndirectory.id=tpx8pd1IQDqJwMfGzXj6GA\nversion=1\ncluster.id=abc\n"
    assert read_meta_properties(content) == MetaProperties(
        1,
        "abc",
        1,
        "tpx8pd1IQDqJwMfGzXj6GA",
        {"node.id": "1", "directory.id": "tpx8pd1IQDqJwMfGzXj6GA", "version": "1", "cluster.id": "abc"},
    )


def test_an_old_brokers_meta_properties() -> None:
    """Before 2.4 there is no cluster id, and without a version it is version 0; then node.id means nothing."""
    found = read_meta_properties(b"broker.id=7\nnode.id=x\n")
    assert isinstance(found, MetaProperties)
    assert (found.version, found.cluster_id, found.node_id, found.directory_id) == (0, None, 7, None)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version=2\n", "version='2', expected 0 or 1"),
        (b"version=one\n", "version='one', expected 0 or 1"),
        (b"version=1\ncluster.id=abc\n", "no node.id"),
        (b"version=1\nnode.id=1\n", "no cluster.id"),
        (b"version=1\nnode.id=one\ncluster.id=abc\n", "node.id='one' is not a number"),
        (b"broker.id=\n", "broker.id='' is not a number"),
        (b"version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=abc\n", "directory.id='abc' is not an id"),
    ],
)
def test_meta_properties_with_which_no_broker_starts(content: bytes, reason: str) -> None:
    found = read_meta_properties(content)
    assert isinstance(found, Malformed)
    assert found.reason == reason


def test_the_version_may_have_blanks_around_it() -> None:
    found = read_meta_properties(b"version= 1 \nnode.id=1\ncluster.id=abc\n")
    assert isinstance(found, MetaProperties)
    assert found.version == 1


def test_a_quorum_state_of_version_0() -> None:
    content = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    assert read_quorum_state(content) == QuorumState(0, 1, 3, None, applied_offset=0, voters=(1, 2))


def test_a_quorum_state_of_version_1() -> None:
    content = (
        b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}\n'
    )
    assert read_quorum_state(content) == QuorumState(1, None, 2, 1, "J8aAPcfLQt2bqs1JT_rMgQ")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n{}",
        b"{",
        b"[]",
        b"[" * 100_000,
        b"{}",
        b'{"data_version":2}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":1,"data_version":1}',
        b'{"leaderId":"1","leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":1,"data_version":0}',
        b'{"leaderId":true,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}',
        b'{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,"currentVoters":[1],"data_version":0}',
        b"\xff",
        b"9" * 10_000,
    ],
)
def test_a_quorum_state_that_cannot_be_read_is_malformed(content: bytes) -> None:
    found = read_quorum_state(content)
    assert isinstance(found, Malformed)
    assert found.line == 1


@pytest.mark.parametrize(
    ("content", "epoch"),
    [
        (b'{"version":0,"brokerEpoch":568}', 568),
        (b'{"version":0,"brokerEpoch":-1,"new":[]}', -1),
        (b"", None),
        (b"{}", None),
        (b'{"brokerEpoch":"x"}', None),
        (b'{"brokerEpoch":9223372036854775808}', None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
    ],
)
def test_the_marker_of_a_clean_stop_counts_whatever_it_holds(content: bytes, epoch: int | None) -> None:
    """That it exists makes the stop clean; its content can only fail to give the epoch."""
    assert read_clean_shutdown(content) == CleanShutdown(epoch)


def test_the_marker_is_written_as_a_broker_writes_it() -> None:
    for marker in FIXTURES.rglob(".kafka_cleanshutdown"):
        epoch = read_clean_shutdown(marker.read_bytes()).broker_epoch
        assert marker.read_bytes() == (b"" if epoch is None else write_clean_shutdown(epoch))
    assert write_clean_shutdown(568) == b'{"version":0,"brokerEpoch":568}'


def test_files_of_real_brokers_are_read() -> None:
    metas = [read_meta_properties(path.read_bytes()) for path in FIXTURES.rglob("meta.properties")]
    assert len(metas) >= 4
    assert all(isinstance(meta, MetaProperties) and meta.cluster_id for meta in metas)
    assert {meta.node_id for meta in metas if isinstance(meta, MetaProperties)} == {1, 2, 3, 4}
    states = [read_quorum_state(path.read_bytes()) for path in FIXTURES.rglob("quorum-state")]
    assert states
    for state in states:
        assert isinstance(state, QuorumState)
        # With version 1 the voters are in the metadata log.
        assert state.voters is None if state.data_version else len(state.voters or ()) == 1
    assert {state.data_version for state in states if isinstance(state, QuorumState)} == {0, 1}
