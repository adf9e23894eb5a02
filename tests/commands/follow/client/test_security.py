"""Files of client properties: their meaning, and that nothing about security is overlooked or printed."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from klog.base.errors import NotKafkaError, UnreadableError, UsageError
from klog.commands.follow.client.client_security import Credentials, Security, read_security

from tests.commands.follow.client.fake_broker import CERTIFICATES

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="se;cr=et";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def written(folder: Path, *lines: str) -> str:
    path = folder / "client.properties"
    path.write_text("\n".join(lines) + "\n", encoding="iso-8859-1")
    return str(path)


def test_a_file_without_security_is_plain_text(tmp_path: Path) -> None:
    """Files for other clients hold much that is none of our business."""
    lines = ("# of a consumer", "group.id=mine", "acks=all", "bootstrap.servers=a:1", "sasl.mechanism=GSSAPI")
    assert read_security(written(tmp_path, *lines)) == Security("klog-follow", None, None)
    assert read_security(written(tmp_path, "client.id = backup-1 ")) == Security("backup-1", None, None)


ESCAPED = rf'sasl.jaas.config={SCRAM} required username="a\\"b" password="\\\\\\101";'


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("sasl.mechanism=PLAIN", f"sasl.jaas.config={PLAIN}"), ("PLAIN", "me", "se;cr=et")),
        (
            ("sasl.mechanism=SCRAM-SHA-512", rf"sasl.jaas.config={SCRAM} Required \\", "username=u password='p w' ;"),
            None,
        ),
        (
            ("sasl.mechanism=SCRAM-SHA-512", f"sasl.jaas.config={SCRAM} Required \\", "username=u password='p w' ;"),
            ("SCRAM-SHA-512", "u", "p w"),
        ),
        (
            ("sasl.mechanism=SCRAM-SHA-256", ESCAPED),
            ("SCRAM-SHA-256", 'a"b', "\\A"),
        ),
        (
            ("sasl.mechanism=SCRAM-SHA-256", "sasl.username=gr\\u00fcn", "sasl.password= x y "),
            ("SCRAM-SHA-256", "grün", "x y"),
        ),
    ],
)  # fmt: skip
def test_name_and_password_are_read_as_java_reads_them(
    tmp_path: Path, lines: tuple[str, ...], expected: tuple[str, str, str] | None
) -> None:
    """JAAS lines have quotes and escapes of their own, within those of the properties file."""
    path = written(tmp_path, "security.protocol=sasl_plaintext", *lines)
    if expected is None:
        with pytest.raises(UsageError):
            read_security(path)
    else:
        assert read_security(path).credentials == Credentials(*expected)


TLS, SASL = "security.protocol=SSL", ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN")
REFUSED = {
    ("security.protocol=KERBEROS",): "security.protocol 'KERBEROS' is not supported",
    ("sasl.oauthbearer.token.endpoint.url=x",): "sasl.oauthbearer.token.endpoint.url is not supported",
    ("security.providers=x",): "security.providers is not supported",
    ("config.providers=file",): "config.providers is not supported",
    ("ssl.cipher.suites=x",): "ssl.cipher.suites is not supported",
    ("ssl.truststore.password=secret",): "ssl.truststore.password is not supported",
    ("security.protocol=SASL_SSL",): "sasl.mechanism 'GSSAPI', the default, is not supported",
    (SASL[0], "sasl.mechanism=OAUTHBEARER"): "sasl.mechanism 'OAUTHBEARER' is not supported",
    SASL: "must give username and password",
    (*SASL, "sasl.username=x"): "must give username and password",
    (*SASL, f"sasl.jaas.config={PLAIN}", "sasl.username=x"): "give only one of them",
    (*SASL, f"sasl.jaas.config={PLAIN[:-1]}"): "sasl.jaas.config is not of the form",
    (*SASL, f"sasl.jaas.config={PLAIN} {PLAIN}"): "sasl.jaas.config is not of the form",
    (*SASL, "sasl.jaas.config=secret"): "sasl.jaas.config is not of the form",
    (*SASL, f"sasl.jaas.config={PLAIN[:-2]};"): "unclosed quote",
    (*SASL, "sasl.jaas.config=com.evil.Login required x=secret;"): "the login module 'com.evil.Login'",
    (*SASL, f"sasl.jaas.config={SCRAM} required username=a password=secret;"): "does not fit sasl.mechanism PLAIN",
    (*SASL, f"sasl.jaas.config={PLAIN.replace('=', ' ', 1)}"): "not of the form name=value",
    (*SASL, f"sasl.jaas.config={PLAIN[:-1]} tokenauth=true;"): "tokenauth",
    (*SASL, f"sasl.jaas.config={PLAIN.partition('username')[0]};"): "must give username and password",
    (TLS, "ssl.truststore.type=JKS"): "ssl.truststore.type 'JKS' is not supported",
    (TLS, "ssl.keystore.type=PKCS12"): "ssl.keystore.type 'PKCS12' is not supported",
    (TLS, "ssl.endpoint.identification.algorithm=ldaps"): "ssl.endpoint.identification.algorithm 'ldaps'",
    (TLS, "ssl.truststore.location=/no/such"): "ssl.truststore.location /no/such: No such file",
    (TLS, "ssl.truststore.location=a", "ssl.truststore.certificates=b"): "give only one of them",
    (TLS, "ssl.truststore.certificates=secret"): "ssl.truststore.certificates: no usable PEM",
    (TLS, f"ssl.truststore.location={__file__}"): "no usable PEM",
    (TLS, f"ssl.keystore.location={CERTIFICATES}/authority.pem"): "ssl.keystore.location",
    (TLS, f"ssl.keystore.location={CERTIFICATES}/client.pem"): "ssl.keystore.location",
    (TLS, f"ssl.keystore.location={CERTIFICATES}/client.pem", "ssl.key.password=secret"): "ssl.keystore.location",
    ("client.id=" + "x" * 1001,): "client.id has more than 1000 bytes",
    ("password secret\\u00",): "line 1 has a",
}  # fmt: skip


@pytest.mark.parametrize("lines", REFUSED)
def test_what_is_not_understood_is_refused_by_name(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """A setting that is overlooked may be the one that keeps a password off the wire; no message repeats a secret."""
    path = written(tmp_path, *lines)
    with pytest.raises(UsageError) as caught:
        read_security(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert REFUSED[lines] in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "se;cr" not in str(caught.value)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    """A directory, nothing, or an endless file."""
    with pytest.raises(UnreadableError):
        read_security(str(tmp_path / "missing"))
    with pytest.raises(NotKafkaError):
        read_security(str(tmp_path))
    (tmp_path / "large").write_bytes(b"#" * (2 << 20))
    with pytest.raises(UsageError, match="too large"):
        read_security(str(tmp_path / "large"))


def test_certificates_are_checked_unless_told_otherwise(tmp_path: Path) -> None:
    """An empty algorithm leaves out the host name alone, as in Java; the authority is always checked."""
    trust = f"ssl.truststore.location={CERTIFICATES}/authority.pem"
    strict = read_security(written(tmp_path, TLS, trust, "ssl.truststore.type=pem")).tls
    lax = read_security(written(tmp_path, TLS, trust, "ssl.endpoint.identification.algorithm=")).tls
    assert strict is not None
    assert lax is not None
    assert (strict.check_hostname, strict.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (lax.check_hostname, lax.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert strict.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert [found["subject"] for found in strict.get_ca_certs()] == [((("commonName", "klog test authority"),),)]


def test_secrets_are_in_no_representation(tmp_path: Path) -> None:
    """Tracebacks and logs print objects."""
    found = read_security(written(tmp_path, *SASL, f"sasl.jaas.config={PLAIN}"))
    assert "me" in repr(found)
    assert "cr=et" not in repr(found) + str(found) + repr(found.credentials)
