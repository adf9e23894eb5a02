"""Whoever answers at a broker's address: each lie ends in one error, in bounded time and memory."""

from __future__ import annotations

import struct
import threading
import time
import tracemalloc
from collections.abc import Callable
from threading import Event

import pytest
from klog.base.errors import KlogError, UnsupportedError
from klog.commands.follow.client.broker_connection import BrokerConnection
from klog.commands.follow.client.client_requests import (
    AuthenticationError,
    ForeignAnswerError,
    LostConnectionError,
    StoppedError,
)
from klog.commands.follow.client.client_security import Credentials, Security, read_security
from klog.formats.structs.schema import Data

from tests.commands.follow.client.fake_broker import CERTIFICATES, FakeBroker, Peer, answer_bytes, only

TIMEOUT_S = 30.0
"""The limit for peers that answer: other work may share the machine."""
MOST_BYTES = 1 << 20
FETCH: Data = {"maxWaitMs": 500, "minBytes": 1, "maxBytes": MOST_BYTES, "topics": []}


def asked(
    talk: Callable[[Peer], None],
    error: type[KlogError],
    security: Security | None = None,
    *,
    tls: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Fetch from a broker that does *talk*; return the message of the *error*, the only possible exception."""
    with FakeBroker(talk, tls=tls) as broker:
        connection = BrokerConnection(broker.host, broker.port, security, timeout_s=timeout_s)
        tracemalloc.start()
        began = time.monotonic()
        try:
            with pytest.raises(error) as caught:
                connection.request("Fetch", FETCH, most_bytes=MOST_BYTES, elements=1000)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            connection.close()
        assert time.monotonic() - began < timeout_s + 60
        assert peak < 4 * MOST_BYTES
        assert broker.failed == []
        assert str(caught.value).startswith(f"localhost:{broker.port}: ")
        assert "\n" not in str(caught.value)
        return str(caught.value)


def answering(data: bytes) -> Callable[[Peer], None]:
    """Return a talk that answers the Fetch with *data* and then waits."""

    def talk(peer: Peer) -> None:
        peer.greet()
        peer.request()
        peer.send(data)
        peer.read(1)

    return talk


@pytest.mark.parametrize("size", [0x7FFFFFFF, MOST_BYTES + 1, -1, -0x80000000, 0, 3])
def test_sizes_that_cannot_be_are_refused_before_memory_is_taken(size: int) -> None:
    """A size of two gigabytes costs its sender four bytes."""
    said = asked(answering(struct.pack(">i", size)), ForeignAnswerError)
    assert f"it sends an answer to Fetch of {size} bytes; 4 to {MOST_BYTES} are accepted" in said


def test_a_size_that_is_allowed_but_never_sent_takes_no_memory() -> None:
    """A thousand such connections would otherwise eat the machine."""

    def talk(peer: Peer) -> None:
        peer.greet()
        peer.request()
        peer.send(struct.pack(">i", MOST_BYTES) + b"x" * 10)
        peer.read(1)

    with FakeBroker(talk) as broker:
        connection = BrokerConnection(broker.host, broker.port, timeout_s=0.3)
        connection.connect()
        connection.send("Fetch", FETCH)
        tracemalloc.start()
        stop = threading.Timer(1.0, connection._stream._stop.set)
        stop.start()
        with pytest.raises(StoppedError):
            connection.receive(most_bytes=1 << 30)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 18


def counted(count: int) -> bytes:
    """Return a Fetch answer of version 12 with so many topics, as an unsigned varint of count + 1."""
    varint, rest = bytearray(), count + 1
    while rest > 0x7F:
        varint.append(rest & 0x7F | 0x80)
        rest >>= 7
    varint.append(rest)
    body = struct.pack(">ixihi", 1, 0, 0, 0) + varint + bytes(100)
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("count", [0x7FFFFFFE, 0x80000000, 0xFFFFFFFE, 200, -1])
def test_counts_that_cannot_be_are_refused(count: int) -> None:
    """Two thousand million topics in a hundred bytes."""

    def talk(peer: Peer) -> None:
        peer.greet(only(ApiVersions=(0, 3), Fetch=(12, 12)))
        number = peer.request().correlation_id
        data = bytearray(counted(count & 0xFFFFFFFF))
        data[4:8] = struct.pack(">i", number)
        peer.send(bytes(data))
        peer.read(1)

    assert "no answer of Kafka's: Fetch in version 12" in asked(talk, ForeignAnswerError)


def test_more_elements_than_were_asked_for_are_refused() -> None:
    """They fit into the bytes, but as objects they would take a hundred times as much."""

    def talk(peer: Peer) -> None:
        peer.greet()
        topics = [{"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "partitions": []}] * 20_000
        peer.answer(peer.request(), {"responses": topics})
        peer.read(1)

    assert "too many elements" in asked(talk, ForeignAnswerError)


def test_a_peer_that_sends_a_byte_now_and_then_ends_at_the_deadline() -> None:
    """Each byte alone is in time; the answer never is."""

    def talk(peer: Peer) -> None:
        peer.greet()
        peer.request()
        for byte in struct.pack(">i", 1000) + bytes(1000):
            peer.send(bytes((byte,)))
            time.sleep(0.05)

    assert "does not answer" in asked(talk, LostConnectionError, timeout_s=1)


def test_what_comes_behind_an_answer_ends_the_connection() -> None:
    """It belongs to no request; the next one is asked over a new connection."""

    def talk(peer: Peer) -> None:
        peer.greet()
        request = peer.request()
        peer.send(2 * answer_bytes(request, {"responses": []}))
        peer.read(1)

    with FakeBroker(talk) as broker:
        connection = BrokerConnection(broker.host, broker.port, timeout_s=TIMEOUT_S)
        for _ in range(3):
            assert connection.request("Fetch", FETCH)["responses"] == []
        connection.close()
        assert broker.connections == 3


HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
TLS_ALERT = bytes.fromhex("15030300020250")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (HTTP, "this is HTTP"),
        (TLS_ALERT, "the broker uses TLS: security.protocol must be SSL or SASL_SSL"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it sends an answer to ApiVersions of 1397966893 bytes"),
        (bytes(100), "of 0 bytes"),
        (struct.pack(">ii", 4, 99), "a response to request 99 instead of 1"),
        (struct.pack(">iihi", 10, 1, 0, -1), "ApiVersions"),
        (struct.pack(">iih", 6, 1, 41), "41|NOT_CONTROLLER|cut off|ApiVersions"),
    ],
)
def test_what_is_no_kafka_is_called_so(data: bytes, said: str) -> None:
    """The port of something else is the most frequent mistake of all."""

    def talk(peer: Peer) -> None:
        peer.request()
        peer.send(data)
        peer.read(1)

    import re

    assert re.search(said, asked(talk, ForeignAnswerError))


def test_tls_spoken_to_a_plain_listener_and_the_reverse() -> None:
    """Either way round, the message names the wrong setting."""
    trust = read_security_of(f"ssl.truststore.location={CERTIFICATES}/authority.pem")

    def plain(peer: Peer) -> None:
        peer.read(100)
        peer.send(HTTP)

    assert "TLS failed: WRONG_VERSION_NUMBER (a listener without TLS gives this answer)" in asked(
        plain, AuthenticationError, trust
    )
    for close in (lambda peer: peer.socket.close(), lambda peer: peer.read(100)):
        said = asked(close, LostConnectionError, trust)
        assert said.endswith("during the TLS handshake (this happens with a listener without TLS)")
    said = asked(lambda peer: None, KlogError, tls=True)
    assert "the broker uses TLS" in said or "closed the connection" in said or "reset" in said


def read_security_of(*lines: str) -> Security:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p"
        path.write_text("\n".join(("security.protocol=SSL", *lines)))
        return read_security(str(path))


def test_an_answer_to_another_request_is_refused() -> None:
    """Records of one partition must not end up in another."""

    def talk(peer: Peer) -> None:
        peer.greet()
        request = peer.request()
        peer.answer(request._replace(correlation_id=request.correlation_id + 1), {"responses": []})
        peer.read(1)

    assert "a response to request 3 instead of 2" in asked(talk, ForeignAnswerError)


def test_bytes_behind_an_answer_are_refused() -> None:
    """A schema that is not the one of the broker would otherwise go unnoticed."""

    def talk(peer: Peer) -> None:
        peer.greet()
        data = bytearray(answer_bytes(peer.request(), {"responses": []}) + b"more")
        data[:4] = struct.pack(">i", len(data) - 4)
        peer.send(bytes(data))
        peer.read(1)

    assert "4 bytes follow it" in asked(talk, ForeignAnswerError)


def test_disconnects_anywhere_are_lost_connections() -> None:
    """A broker may be killed at any byte; that is retried, unlike a lie."""
    whole: list[bytes] = []

    def talk(peer: Peer) -> None:
        peer.answer(peer.request(), {"apiKeys": only(ApiVersions=(0, 3), Fetch=(12, 12))})
        whole.append(answer_bytes(peer.request(), {"responses": [{"topic": "t", "partitions": []}]}))
        peer.send(whole[-1][: len(whole) - 1])

    with FakeBroker(talk) as broker:
        connection = BrokerConnection(broker.host, broker.port, timeout_s=TIMEOUT_S)
        cuts = 0
        while not whole or cuts < len(whole[0]):
            with pytest.raises(LostConnectionError, match=r"closed the connection|Connection reset"):
                connection.request("Fetch", FETCH)
            cuts += 1
        assert connection.request("Fetch", FETCH)["responses"][0]["topic"] == "t"
        connection.close()


def test_a_broker_with_nothing_that_we_need_is_unsupported() -> None:
    """Too old, too new, or without versions: one line that names the request and its versions."""
    for apis in ([], only(ApiVersions=(0, 4)), only(Fetch=(4, 11)), only(Fetch=(19, 30)), only(Fetch=(12, 11))):
        said = asked(lambda peer, apis=apis: (peer.greet(apis), peer.read(1))[0], UnsupportedError)  # type: ignore[misc]
        assert "the broker does not support Fetch in version 12 to 18" in said


def test_an_old_broker_is_asked_for_its_versions_again() -> None:
    """It answers in version 0 with error 35, whatever was asked (KIP-511)."""

    def talk(peer: Peer) -> None:
        request = peer.request()
        assert request.version == 3
        peer.answer(request._replace(body=None), {"errorCode": 35, "apiKeys": []})
        request = peer.request()
        assert request.version == 0
        peer.answer(request, {"apiKeys": only(ApiVersions=(0, 2), Fetch=(4, 12))})
        request = peer.request()
        assert (request.api.name, request.version) == ("Fetch", 12)
        peer.answer(request, {"responses": []})
        peer.read(1)

    with FakeBroker(talk) as broker:
        connection = BrokerConnection(broker.host, broker.port, timeout_s=TIMEOUT_S)
        assert connection.request("Fetch", FETCH)["responses"] == []
        connection.close()
        assert broker.failed == []


def test_a_broker_that_refuses_every_version_is_not_asked_for_ever() -> None:
    def talk(peer: Peer) -> None:
        while True:
            peer.answer(peer.request()._replace(body=None), {"errorCode": 35, "apiKeys": []})

    assert "ApiVersions: UNSUPPORTED_VERSION (35)" in asked(talk, KlogError)


SASL = Security(credentials=Credentials("SCRAM-SHA-256", "me", "secret"))


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ([{"errorCode": 33, "mechanisms": []}], "sasl.mechanism SCRAM-SHA-256 is not enabled there, only none"),
        ([{"errorCode": 34, "mechanisms": []}], "SCRAM-SHA-256: ILLEGAL_SASL_STATE"),
        ([{"mechanisms": []}, {"errorCode": 58, "errorMessage": "no"}], "SASL_AUTHENTICATION_FAILED: no"),
        ([{"mechanisms": []}, {"errorCode": 58, "errorMessage": None}], "SASL_AUTHENTICATION_FAILED: "),
        ([{"mechanisms": []}, {"errorCode": 9999}], "UNKNOWN_SERVER_ERROR"),
        ([{"mechanisms": []}, {"authBytes": b""}], "is not SCRAM"),
        ([{"mechanisms": []}, {"authBytes": b"r=x,s=AAAA,i=4096"}], "nonce does not continue ours"),
    ],
)
def test_servers_that_break_the_rules_of_sasl_are_refused(bodies: list[Data], said: str) -> None:
    """A server that simply welcomes everybody has not proved who it is."""

    def talk(peer: Peer) -> None:
        peer.greet()
        for body in bodies:
            peer.answer(peer.request(), {"authBytes": b"", **body})
        peer.read(1)

    message = asked(talk, AuthenticationError, SASL)
    assert said in message
    assert "secret" not in message


def test_stopping_ends_every_wait_at_once() -> None:
    """^C and SIGTERM must end within seconds, whatever a broker does: before its first byte, within an answer."""
    silent: list[Callable[[Peer], None]] = [
        lambda peer: peer.read(1000) and None,
        answering(b""),
        answering(struct.pack(">i", 1000) + b"half"),
    ]
    for talk in silent:
        stop = Event()
        with FakeBroker(talk) as broker:
            connection = BrokerConnection(broker.host, broker.port, stop=stop)
            threading.Timer(0.3, stop.set).start()
            began = time.monotonic()
            with pytest.raises(StoppedError):
                connection.request("Fetch", FETCH)
            assert time.monotonic() - began < 20  # of the half a minute that an answer may take
            with pytest.raises(StoppedError):
                connection.request("Fetch", FETCH)


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [
        ("127.0.0.1", 1, "cannot connect: Connection refused"),
        ("127.0.0.1", 0, "there is no such port"),
        ("127.0.0.1", 70000, "there is no such port"),
        ("no-such-host.invalid", 9092, "cannot resolve the name"),
        ("a\0b", 9092, "cannot resolve the name"),
        ("x" * 300, 9092, "cannot resolve the name"),
        ("..", 9092, "cannot resolve the name"),
    ],
)
def test_addresses_that_lead_nowhere(host: str, port: int, said: str) -> None:
    """They are in the metadata of a cluster, too."""
    connection = BrokerConnection(host, port, timeout_s=5)
    with pytest.raises(LostConnectionError) as caught:
        connection.connect()
    assert said in str(caught.value)
