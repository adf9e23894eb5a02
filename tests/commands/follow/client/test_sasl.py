"""SASL: the conversations of the standards, and servers that lie."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from klog.commands.follow.client import client_security as sasl
from klog.commands.follow.client.client_requests import AuthenticationError
from klog.commands.follow.client.client_security import PlainConversation, ScramConversation, conversation

NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"r={NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def talk() -> ScramConversation:
    return ScramConversation("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_scram_sha_256_says_what_the_standard_says() -> None:
    """The example of RFC 7677, section 3."""
    said = talk()
    assert said.first() == b"n,,n=user,r=" + NONCE.encode()
    proof = b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert said.answer(FIRST) == f"c=biws,r={NONCE}{SERVER_NONCE},".encode() + proof
    assert said.answer(SIGNATURE) is None


def test_scram_over_another_hash_says_what_its_standard_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of RFC 5802, section 5, whose hash Kafka does not have: nothing in the steps is SHA-256's own."""
    monkeypatch.setitem(sasl.SCRAM_HASHES, "SCRAM-SHA-1", "sha1")
    said = ScramConversation("SCRAM-SHA-1", "user", "pencil", "fyko+d2lbbFgONRv9qkxdawL")
    first = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    final = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    assert (said.answer(first), said.answer(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")) == (final, None)


def test_scram_sha_512_proves_the_password() -> None:
    """No standard has an example; the server's check is made here, from the stored key alone."""
    said = ScramConversation("SCRAM-SHA-512", "me", "secret", "abc")
    challenge = b"r=abcdef,s=" + b64encode(b"salt") + b",i=4096"
    final = said.answer(challenge) or b""
    head, _, proof = final.rpartition(b",p=")
    salted = hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 4096)
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    signature = hmac.digest(stored, b"n=me,r=abc," + challenge + b"," + head, "sha512")
    client_key = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
    assert hashlib.sha512(client_key).digest() == stored
    own = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), b"n=me,r=abc," + challenge + b"," + head, "sha512")
    assert said.answer(b"v=" + b64encode(own)) is None


def test_names_with_commas_and_equal_signs_are_escaped() -> None:
    """A name could otherwise add fields of its own."""
    assert ScramConversation("SCRAM-SHA-256", "a=b,n=c", "x", "N").first() == b"n,,n=a=3Db=2Cn=3Dc,r=N"


def test_nonces_are_never_the_same() -> None:
    """An answer that was recorded once must not fit again."""
    firsts = {conversation("SCRAM-SHA-256", "a", "b").first() for _ in range(100)}
    assert len(firsts) == 100


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (b"", "the server's message is not SCRAM"),
        (b"hello", "the server's message is not SCRAM"),
        (b"\xff\xfe=1", "the server's message is not SCRAM"),
        (b"r=" + b"x" * 100_000, "the server's message is not SCRAM"),
        (FIRST.replace(b"r=rO", b"r=rX"), "nonce does not continue ours"),
        (b"r=" + NONCE.encode() + b",s=W22Z,i=4096", "nonce does not continue ours"),
        (b"s=W22Z,i=4096", "nonce does not continue ours"),
        (FIRST.replace(b"4096", b"4095"), "asks for '4095' iterations"),
        (FIRST.replace(b"4096", b"1000001"), "asks for '1000001' iterations"),
        (FIRST.replace(b"4096", b"2147483648"), "asks for '2147483648' iterations"),
        (FIRST.replace(b"4096", b"9" * 5000), "asks for '99999999999999999999' iterations"),
        (FIRST.replace(b"4096", b"-4096"), "asks for '-4096' iterations"),
        (FIRST.replace(b"4096", "٤٠٩٦".encode()), "iterations"),
        (FIRST.replace(b",i=4096", b""), "asks for '' iterations"),
        (FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s=!"), "has no s"),
        (b"m=x," + FIRST, "extension"),
    ],
)
def test_a_first_message_that_breaks_a_rule_ends_it(challenge: bytes, said: str) -> None:
    """A server may be anybody until it has proved its knowledge of the password."""
    with pytest.raises(AuthenticationError, match=said.replace("'", ".")) as caught:
        talk().answer(challenge)
    assert "pencil" not in str(caught.value)


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (SIGNATURE.replace(b"6r", b"7r"), "cannot prove that it has the password"),
        (SIGNATURE[:-8] + b"=", "cannot prove that it has the password|has no v"),
        (b"v=", "has no v"),
        (b"x=1", "has no v"),
        (b"e=invalid-proof", "invalid-proof"),
    ],
)
def test_a_server_that_does_not_know_the_password_is_refused(challenge: bytes, said: str) -> None:
    """Otherwise any server at that address could send records of its own."""
    said_so_far = talk()
    said_so_far.answer(FIRST)
    with pytest.raises(AuthenticationError, match=said):
        said_so_far.answer(challenge)


def test_plain_says_name_and_password_and_nothing_more() -> None:
    """RFC 4616."""
    said = PlainConversation("tim", "tanstaaf\xfc")
    assert said.first() == b"\0tim\0tanstaaf\xc3\xbc"
    assert said.answer(b"") is None
    with pytest.raises(AuthenticationError):
        said.answer(b"more?")
