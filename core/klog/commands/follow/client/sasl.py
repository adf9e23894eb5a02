"""The client's side of SASL: PLAIN and SCRAM (RFC 4616, RFC 5802, RFC 7677).

Each mechanism is a conversation: `first` is the first message, `answer` receives the server's message and returns the
next one, None when both sides are satisfied.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from typing import Final, Protocol

from klog.commands.follow.client.client_failures import AuthenticationError

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
            raise AuthenticationError("PLAIN: the server goes on after the password")
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
            raise self._failure("the server does not know the password: this is not the broker it claims to be")
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
            raise self._failure("what the server says is no SCRAM")
        return {name: value for name, _, value in reversed(fields)}

    def _decoded(self, fields: dict[str, str], name: str) -> bytes:
        try:
            decoded = binascii.a2b_base64(fields.get(name, "").encode())
        except binascii.Error:
            decoded = b""
        if not decoded:
            raise self._failure(f"what the server says has no {name}")
        return decoded

    def _failure(self, why: str) -> AuthenticationError:
        return AuthenticationError(f"{self._mechanism}: {why}")


def conversation(mechanism: str, username: str, password: str) -> SaslConversation:
    """Return the conversation of *mechanism*, one of MECHANISMS."""
    if mechanism == "PLAIN":
        return PlainConversation(username, password)
    return ScramConversation(mechanism, username, password)
