"""The security of a connection: settings from a file of Java client properties, and the client's side of SASL.

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="secret";
    ssl.truststore.location=/etc/kafka/ca.pem

An unknown setting about security is refused: klog could otherwise send a password to a place where it must not be sent.
All other properties are ignored.  No message contains a value that may be secret.

Each SASL mechanism, PLAIN or SCRAM, is a conversation: `first` is the first message, `answer` receives the server's
message and returns the next one, None when both sides are satisfied (RFC 4616, RFC 5802, RFC 7677).
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from klog.base.errors import UsageError
from klog.base.read_only import ReadOnlyFile
from klog.commands.follow.client.client_requests import AuthenticationError
from klog.formats.checkpoint import Malformed
from klog.formats.properties import read_properties

if TYPE_CHECKING:
    import re
    import ssl


SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ("PLAIN", *SCRAM_HASHES)
_FEWEST_ITERATIONS: Final = 4096
"""Kafka: ScramMechanism.minIterations."""
_MOST_ITERATIONS: Final = 1_000_000
"""A second of work; brokers since 4.1 allow no more than 16384, older ones any number."""
_LONGEST_MESSAGE: Final = 64 << 10
_HEADER: Final = "n,,"
"""GS2 header: no channel binding, no other identity."""


class SaslConversation(Protocol):
    """The client's messages to the server, in turns."""

    def first(self) -> bytes:
        """Return the first message."""

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the answer to *challenge*, None at the end of the conversation.  Raises AuthenticationError."""


class PlainConversation:
    """PLAIN: the password as it is.  Kafka: PlainSaslServer."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        """Return name and password."""
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        """Return None; the server sends nothing, or refuses the client."""
        if challenge:
            raise AuthenticationError("PLAIN: the server continues after the password")
        return None


class ScramConversation:
    """SCRAM: both sides prove that they know the password.  Kafka: ScramSaslClient.

    The text before the proof that both sides sign is client-first-bare, server-first and client-final without proof.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str | None = None) -> None:
        self._mechanism, self._hash = mechanism, SCRAM_HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce or secrets.token_hex(16)
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """Return name and nonce."""
        return (_HEADER + self._bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the proof for the server's salt; None after its own proof, which must be right."""
        fields = self._fields(challenge)
        if self._signature is None:
            return self._proof(challenge, fields)
        if "e" in fields:
            raise self._failure(f"the server says {fields['e'][:80]!r}")
        if not hmac.compare_digest(self._signature, self._decoded(fields, "v")):
            raise self._failure("the server cannot prove that it has the password: it is not the expected broker")
        return None

    def _proof(self, challenge: bytes, fields: dict[str, str]) -> bytes:
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        if "m" in fields:
            raise self._failure("the server asks for an extension that no standard defines")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._failure("the server's nonce does not continue ours")
        count = int(iterations) if iterations.isascii() and iterations.isdigit() and len(iterations) < 10 else 0
        if not _FEWEST_ITERATIONS <= count <= _MOST_ITERATIONS:
            wanted = f"{_FEWEST_ITERATIONS} to {_MOST_ITERATIONS} are accepted"
            raise self._failure(f"the server asks for {iterations[:20]!r} iterations, {wanted}")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, self._decoded(fields, "s"), count)
        final = f"c={binascii.b2a_base64(_HEADER.encode(), newline=False).decode()},r={nonce}"
        signed = b",".join((self._bare.encode(), challenge, final.encode()))
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        proof = bytes(a ^ b for a, b in zip(client_key, self._hmac(stored_key, signed), strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return final.encode() + b",p=" + binascii.b2a_base64(proof, newline=False)

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)

    def _fields(self, message: bytes) -> dict[str, str]:
        try:
            text = message.decode() if len(message) <= _LONGEST_MESSAGE else ""
        except UnicodeDecodeError:
            text = ""
        fields = [part.partition("=") for part in text.split(",")]
        if not text or any(len(name) != 1 or not equals for name, equals, _ in fields):
            raise self._failure("the server's message is not SCRAM")
        return {name: value for name, _, value in reversed(fields)}

    def _decoded(self, fields: dict[str, str], name: str) -> bytes:
        try:
            decoded = binascii.a2b_base64(fields.get(name, "").encode())
        except binascii.Error:
            decoded = b""
        if not decoded:
            raise self._failure(f"the server's message has no {name}")
        return decoded

    def _failure(self, why: str) -> AuthenticationError:
        return AuthenticationError(f"{self._mechanism}: {why}")


def conversation(mechanism: str, username: str, password: str) -> SaslConversation:
    """Return the conversation of *mechanism*, one of MECHANISMS."""
    if mechanism == "PLAIN":
        return PlainConversation(username, password)
    return ScramConversation(mechanism, username, password)


DEFAULT_CLIENT_ID: Final = "klog-follow"
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LARGEST_FILE: Final = 1 << 20
_LONGEST_CLIENT_ID: Final = 1000
_LOGIN_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": tuple(SCRAM_HASHES),
}
_CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_ABOUT_SECURITY: Final = ("security.", "sasl.", "ssl.", "config.providers")
_KNOWN: Final = frozenset(
    (
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "client.id",
    )
)


@dataclass(frozen=True)
class Credentials:
    """Who we are.  The password is in no message and in no repr."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Security:
    """The needs of a connection beyond an address.

    *tls* None: plain TCP.  *credentials* None: no SASL.
    """

    client_id: str = DEFAULT_CLIENT_ID
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    credentials: Credentials | None = None


def read_security(path: str) -> Security:
    """Return the settings in the properties file *path*.

    Raises UsageError, which names the property, for missing, contradictory or unsupported ones; UnreadableError.
    """
    with ReadOnlyFile(path) as file:
        content = file.read(0, _LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise UsageError(f"{path}: too large for a file of properties")
    found = read_properties(content)
    if isinstance(found, Malformed):
        # The message does not quote the line, which may hold a password.
        raise UsageError(f"{path}: line {found.line} has a \\u without four hexadecimal digits")
    try:
        return _security({name: value.strip() for name, value in found.items()})
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _security(properties: dict[str, str]) -> Security:
    unknown = [name for name in properties if name.startswith(_ABOUT_SECURITY) and name not in _KNOWN]
    if unknown:
        raise UsageError(f"{unknown[0]} is not supported, and concerns security")
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"security.protocol {protocol!r} is not supported: {', '.join(_PROTOCOLS)} are")
    client_id = properties.get("client.id") or DEFAULT_CLIENT_ID
    if len(client_id.encode("utf-8", "replace")) > _LONGEST_CLIENT_ID:
        raise UsageError(f"client.id has more than {_LONGEST_CLIENT_ID} bytes")
    return Security(
        client_id,
        _tls_context(properties) if protocol.endswith("SSL") else None,
        _credentials(properties) if protocol.startswith("SASL") else None,
    )


# ---------------------------------------------------------------- SASL


def _credentials(properties: dict[str, str]) -> Credentials:
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism not in MECHANISMS:
        default = "" if "sasl.mechanism" in properties else ", the default,"
        raise UsageError(f"sasl.mechanism {mechanism!r}{default} is not supported: {', '.join(MECHANISMS)} are")
    jaas = properties.get("sasl.jaas.config")
    if jaas is not None and not {"sasl.username", "sasl.password"}.isdisjoint(properties):
        raise UsageError("sasl.jaas.config and sasl.username or sasl.password: give only one of them")
    if jaas is not None:
        username, password = _jaas_login(jaas, mechanism)
    else:
        username, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
    if not username or not password:
        where = "sasl.jaas.config" if jaas is not None else "sasl.jaas.config, or sasl.username and sasl.password,"
        raise UsageError(f"{where} must give username and password")
    return Credentials(mechanism, username, password)


def _jaas_login(text: str, mechanism: str) -> tuple[str, str]:
    """Return username and password of a JAAS line.  Kafka: JaasConfig, which reads it with a StreamTokenizer."""
    tokens = _jaas_tokens(text)
    if len(tokens) < 3 or tokens[-1] != ";" or tokens.count(";") != 1 or tokens[1].lower() not in _CONTROL_FLAGS:
        raise UsageError('sasl.jaas.config is not of the form MODULE required username="…" password="…";')
    mechanisms = _LOGIN_MODULES.get(tokens[0])
    if mechanisms is None:
        raise UsageError(f"sasl.jaas.config: the login module {tokens[0][:120]!r} is not supported")
    if mechanism not in mechanisms:
        raise UsageError(f"sasl.jaas.config: {tokens[0].rpartition('.')[2]} does not fit sasl.mechanism {mechanism}")
    options = tokens[2:-1]
    if len(options) % 3 or any(equals != "=" for equals in options[1::3]):
        raise UsageError("sasl.jaas.config: an option is not of the form name=value")
    values = dict(zip(options[::3], options[2::3], strict=True))
    if "tokenauth" in values and values["tokenauth"].lower() != "false":
        raise UsageError("sasl.jaas.config: tokenauth, delegation tokens, is not supported")
    return values.get("username", ""), values.get("password", "")


def _jaas_tokens(text: str) -> list[str]:
    """Return words, contents of quotes, `=` and `;`.  Java: StreamTokenizer."""
    import re

    tokens: list[str] = []
    pattern = r"""\s+|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([=;])|([^\s"'=;]+)|(.)"""
    for found in re.finditer(pattern, text):
        if found[5]:
            raise UsageError("sasl.jaas.config has an unclosed quote")
        quoted = found[1] if found[1] is not None else found[2]
        if quoted is not None:
            tokens.append(re.sub(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", _unescaped, quoted))
        elif found[3] or found[4]:
            tokens.append(found[3] or found[4])
    return tokens


def _unescaped(escape: re.Match[str]) -> str:
    letter = escape[1]
    return chr(int(letter, 8)) if letter.isdigit() and letter[0] < "8" else _ESCAPES.get(letter, letter)


_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


# ---------------------------------------------------------------- TLS


def _tls_context(properties: dict[str, str]) -> ssl.SSLContext:
    import ssl

    for store in ("truststore", "keystore"):
        kind = properties.get(f"ssl.{store}.type", "PEM")
        if kind.upper() != "PEM":
            raise UsageError(f"ssl.{store}.type {kind!r} is not supported, only PEM is")
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", ""):
        raise UsageError(
            f"ssl.endpoint.identification.algorithm {algorithm!r} is not supported: use https, or an empty value"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = algorithm == "https"
    location, certificates = properties.get("ssl.truststore.location"), properties.get("ssl.truststore.certificates")
    if location and certificates:
        raise UsageError("ssl.truststore.location and ssl.truststore.certificates: give only one of them")
    if location:
        _load("ssl.truststore.location", location, lambda: context.load_verify_locations(location))
    elif certificates:
        _load("ssl.truststore.certificates", "", lambda: context.load_verify_locations(cadata=certificates))
    else:
        context.load_default_certs()
    keystore, password = properties.get("ssl.keystore.location"), properties.get("ssl.key.password", "")
    if keystore:
        # Without a given password OpenSSL would ask on the terminal.
        _load("ssl.keystore.location", keystore, lambda: context.load_cert_chain(keystore, password=password))
    return context


def _load(name: str, place: str, load: Callable[[], None]) -> None:
    import ssl

    shown = f"{name} {place}".rstrip()
    try:
        load()
    except ssl.SSLError as error:
        why = error.reason or "the content, or the password, is wrong"
        told = f"{shown}: no usable PEM ({why}); keytool and openssl convert JKS and PKCS12"
        raise UsageError(told) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{shown}: {getattr(error, 'strerror', None) or 'no PEM'}") from None
