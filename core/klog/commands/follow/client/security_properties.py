"""The security settings of a connection, from a file of Java client properties.

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="secret";
    ssl.truststore.location=/etc/kafka/ca.pem

An unknown setting about security is refused: klog could otherwise send a password to a place where it must not be sent.
All other properties are ignored.  No message contains a value that may be secret.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from klog.base.errors import UsageError
from klog.base.read_only import ReadOnlyFile
from klog.commands.follow.client.sasl import MECHANISMS, SCRAM_HASHES
from klog.formats.checkpoint import Malformed
from klog.formats.properties import read_properties

if TYPE_CHECKING:
    import re
    import ssl

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
        raise UsageError(f"{unknown[0]} is not supported, and has to do with security")
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
        raise UsageError("sasl.jaas.config and sasl.username or sasl.password: only one of them can count")
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
            raise UsageError("sasl.jaas.config has a quote without its other half")
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
        raise UsageError(f"ssl.endpoint.identification.algorithm {algorithm!r} is not supported: https is, or nothing")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = algorithm == "https"
    location, certificates = properties.get("ssl.truststore.location"), properties.get("ssl.truststore.certificates")
    if location and certificates:
        raise UsageError("ssl.truststore.location and ssl.truststore.certificates: only one of them can count")
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
        told = f"{shown}: no PEM that can be used ({why}); keytool and openssl convert JKS and PKCS12"
        raise UsageError(told) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{shown}: {getattr(error, 'strerror', None) or 'no PEM'}") from None
