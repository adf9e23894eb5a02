"""A real broker with every kind of listener: accepted clients, refused ones, and the messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from klog.base.errors import KlogError
from klog.commands.follow.client.client_requests import AuthenticationError, LostConnectionError, RefusedRequestError
from klog.commands.follow.client.client_security import read_security
from klog.commands.follow.client.cluster import LATEST, Cluster
from klog.commands.follow.side_file import committed_offsets
from klog.formats.error_codes import ErrorCode

from tests.brokers import kafka
from tests.brokers.clients import SILENT, admin, create, records, with_librdkafka
from tests.commands.follow.client.fake_broker import CERTIFICATES
from tests.commands.follow.client.recorded import own_settings

PLAINTEXT, SSL, SASL_SSL, SASL_PLAINTEXT, MUTUAL = (kafka.PORT + at for at in (0, 2, 3, 4, 5))
READER, STRANGER = "read=er,n=x", "stranger"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SESSION_MS = 2000
LISTENERS = {
    "PLAINTEXT": ("PLAINTEXT", PLAINTEXT),
    "CONTROLLER": ("PLAINTEXT", kafka.PORT + 1),
    "SSL": ("SSL", SSL),
    "SASL_SSL": ("SASL_SSL", SASL_SSL),
    "SASL_PLAINTEXT": ("SASL_PLAINTEXT", SASL_PLAINTEXT),
    "MUTUAL": ("SSL", MUTUAL),
}
SETTINGS = {
    "listeners": ",".join(f"{name}://localhost:{port}" for name, (_, port) in LISTENERS.items()),
    "advertised.listeners": ",".join(
        f"{name}://localhost:{port}" for name, (_, port) in LISTENERS.items() if name != "CONTROLLER"
    ),
    "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, (protocol, _) in LISTENERS.items()),
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": str(CERTIFICATES / "broker.pem"),
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": str(CERTIFICATES / "authority.pem"),
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_LOGIN} user_plain="plain-secret";',
    "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SCRAM_LOGIN};",
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM_LOGIN};",
    "listener.name.sasl_ssl.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:plain;User:{READER};User:CN=klog;User:CN=localhost",
}


@dataclass
class Secured:
    """The broker, and a place for files of properties."""

    broker: kafka.Cluster
    folder: Path

    def cluster(self, port: int, *lines: str, host: str = "localhost") -> Cluster:
        """Return the cluster as it is seen through one listener with these properties."""
        path = self.folder / "client.properties"
        path.write_text("\n".join(lines))
        return Cluster(f"{host}:{port}", read_security(str(path)))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker, a topic with records, a group, and two users."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    folder = tmp_path_factory.mktemp("secured")
    with kafka.Cluster(kafka.NEWEST, folder / "broker", settings=SETTINGS) as broker:
        create(broker.bootstrap, {"private": {}})
        with_librdkafka(broker.bootstrap, "private", "zstd", records("secured", 50))
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", **SILENT})
        consumer.commit(offsets=[TopicPartition("private", 0, 7)], asynchronous=False)
        consumer.close()
        client = admin(broker.bootstrap)
        kinds = ((ScramMechanism.SCRAM_SHA_256, 4096), (ScramMechanism.SCRAM_SHA_512, 16384))
        for kind, rounds in kinds:  # a request may name a user once
            info = ScramCredentialInfo(kind, rounds)
            users = [UserScramCredentialUpsertion(user, info, b"scram-secret") for user in (READER, STRANGER)]
            for future in client.alter_user_scram_credentials(users).values():
                future.result(60)
        time.sleep(1)  # until every part of the broker has them
        yield Secured(broker, folder)


TRUST = f"ssl.truststore.location={CERTIFICATES}/authority.pem"
KEY = (f"ssl.keystore.location={CERTIFICATES}/client.pem", "ssl.key.password=key-secret")


def scram(mechanism: str, user: str = READER, password: str = "scram-secret") -> tuple[str, ...]:
    login = f'sasl.jaas.config={SCRAM_LOGIN} username="{user}" password="{password}";'
    return "security.protocol=SASL_SSL", f"sasl.mechanism={mechanism}", login, TRUST


def plain(password: str = "plain-secret") -> tuple[str, ...]:
    login = f'sasl.jaas.config={PLAIN_LOGIN} username="plain" password="{password}";'
    return "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", login


WELCOME = {
    "plain text": (PLAINTEXT, ()),
    "TLS": (SSL, ("security.protocol=SSL", TRUST)),
    "TLS with a certificate of ours": (MUTUAL, ("security.protocol=SSL", TRUST, *KEY)),
    "PLAIN": (SASL_PLAINTEXT, plain()),
    "SCRAM-SHA-256": (SASL_SSL, scram("SCRAM-SHA-256")),
    "SCRAM-SHA-512": (SASL_SSL, scram("SCRAM-SHA-512")),
}


@pytest.mark.kafka
@pytest.mark.parametrize("way", WELCOME)
def test_every_way_in_leads_to_the_same_records(secured: Secured, way: str) -> None:
    """All requests, over each kind of listener."""
    port, lines = WELCOME[way]
    cluster = secured.cluster(port, *lines)
    found = cluster.topics()
    assert found.brokers == {1: ("localhost", port)}
    topic = next(topic for topic in found.topics if topic.name == "private")
    assert cluster.offsets([("private", 0)], LATEST)["private", 0].offset == 50
    assert cluster.epoch_ends({("private", 0): 0})["private", 0].end_offset == 50
    assert own_settings(cluster, ["private"]) == {"private": {}}
    assert committed_offsets(cluster)["readers"][0].offset == 7
    connection = cluster.connection(1)
    partition = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
    topics = [{"topicId": topic.topic_id, "partitions": [partition]}]
    answer = connection.request("Fetch", {"maxWaitMs": 100, "minBytes": 1, "maxBytes": 1 << 20, "topics": topics})
    log = secured.broker.data / "private-0" / f"{0:020}.log"
    assert bytes(answer["responses"][0]["partitions"][0]["records"]) == log.read_bytes()
    connection.close()
    cluster.close()


OTHER_TRUST = f"ssl.truststore.location={CERTIFICATES}/stranger.pem"
REFUSED: dict[str, tuple[int, tuple[str, ...], str, type[KlogError], str]] = {
    "wrong password of PLAIN": (
        SASL_PLAINTEXT, plain("other-secret"), "localhost", AuthenticationError, "PLAIN: SASL_AUTHENTICATION_FAILED: ",
    ),
    "wrong password of SCRAM": (
        SASL_SSL, scram("SCRAM-SHA-512", password="other-secret"), "localhost", AuthenticationError,
        "SCRAM-SHA-512: SASL_AUTHENTICATION_FAILED: ",
    ),
    "unknown user": (
        SASL_SSL, scram("SCRAM-SHA-256", "nobody"), "localhost", AuthenticationError,
        "SCRAM-SHA-256: SASL_AUTHENTICATION_FAILED: ",
    ),
    "mechanism that is not enabled": (
        SASL_SSL, (*plain()[1:], "security.protocol=SASL_SSL", TRUST), "localhost", AuthenticationError,
        "sasl.mechanism PLAIN is not enabled there, only SCRAM-SHA-",
    ),
    "authority that is not trusted": (
        SSL, ("security.protocol=SSL", OTHER_TRUST), "localhost", AuthenticationError, "its certificate is refused: ",
    ),
    "host name that is not in the certificate": (
        SSL, ("security.protocol=SSL", TRUST), "127.0.0.1", AuthenticationError,
        "its certificate is refused: IP address mismatch",
    ),
    "no certificate of ours": (
        MUTUAL, ("security.protocol=SSL", TRUST), "localhost", AuthenticationError,
        "(the broker requires another client certificate, ssl.keystore.location)",
    ),
    "no SASL where it is needed": (SASL_PLAINTEXT, (), "localhost", LostConnectionError, "closed the connection"),
    "TLS where there is none": (
        PLAINTEXT, ("security.protocol=SSL", TRUST), "localhost", LostConnectionError,
        "during the TLS handshake (this happens with a listener without TLS)",
    ),
    "SASL where there is none": (
        PLAINTEXT, plain(), "localhost", AuthenticationError, "PLAIN",
    ),
}  # fmt: skip


@pytest.mark.kafka
@pytest.mark.parametrize("case", REFUSED)
def test_who_is_not_welcome_is_told_why(secured: Secured, case: str) -> None:
    """One line with host, port and the fault, and never a password in it."""
    port, lines, host, error, said = REFUSED[case]
    with pytest.raises(error) as caught:
        secured.cluster(port, *lines, host=host).topics()
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{host}:{port}: ")
    assert "secret" not in str(caught.value)


@pytest.mark.kafka
def test_plain_text_to_a_tls_listener_says_which_setting_is_wrong(secured: Secured) -> None:
    with pytest.raises(KlogError, match=r"security\.protocol must be SSL or SASL_SSL|closed the connection"):
        secured.cluster(SSL).topics()


@pytest.mark.kafka
def test_without_the_check_of_the_host_name_its_address_will_do(secured: Secured) -> None:
    """As with Java clients: the empty algorithm."""
    lines = ("security.protocol=SSL", TRUST, "ssl.endpoint.identification.algorithm=")
    cluster = secured.cluster(SSL, *lines, host="127.0.0.1")
    assert cluster.topics().topics
    cluster.close()


@pytest.mark.kafka
def test_topics_that_are_not_ours_are_named(secured: Secured) -> None:
    """A user without rights gets in, and sees nothing."""
    cluster = secured.cluster(SASL_SSL, *scram("SCRAM-SHA-512", STRANGER))
    assert cluster.topics().topics == ()
    (asked,) = cluster.topics(["private"]).topics
    assert asked.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(RefusedRequestError, match=r"topic private: TOPIC_AUTHORIZATION_FAILED \(29\)") as caught:
        cluster.settings(["private"])
    assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert committed_offsets(cluster) == {}
    cluster.close()


@pytest.mark.kafka
def test_a_session_that_ends_is_renewed_in_time(secured: Secured) -> None:
    """Brokers close connections whose session is over; ours has two seconds, and lives for five (KIP-368)."""
    cluster = secured.cluster(SASL_SSL, *scram("SCRAM-SHA-256"))
    cluster.topics()
    connection = cluster.connection(1)
    connection.connect()
    sent: list[str] = []
    socket, before = connection._stream._socket, connection._send
    connection._send = lambda name, body: (sent.append(name), before(name, body))[1]  # type: ignore[method-assign]
    until = time.monotonic() + 2.5 * SESSION_MS / 1000
    while time.monotonic() < until:
        connection.request("Metadata", {"topics": []})
        time.sleep(0.1)
    assert connection._stream._socket is socket, "the connection must be the same one"
    assert sent.count("SaslHandshake") >= 2
    connection.close()
    cluster.close()


@pytest.mark.kafka
def test_a_session_cannot_be_renewed_with_another_password(secured: Secured) -> None:
    """A connection must not outlive its permission, and the failure reports that."""
    connections = []
    for password in ("scram-secret", "other-secret"):
        cluster = secured.cluster(SASL_SSL, *scram("SCRAM-SHA-256", password=password))
        cluster._brokers = {1: ("localhost", SASL_SSL)}
        connections.append(cluster.connection(1))
    right, wrong = connections
    right.connect()
    right._security = wrong._security
    time.sleep(SESSION_MS / 1000 * 0.9)
    with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
        right.request("Metadata", {"topics": []})
