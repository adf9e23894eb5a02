"""Decrypts the chunks that Aiven's plugin wrote: AES-256-GCM, with a key that an RSA key has wrapped.

The wrapping is RSA-OAEP with SHA3-512 for the label and for the mask, which the package `cryptography` refuses; it is
some arithmetic, and done here.  RFC 8017, 7.1.2.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from klog.base.errors import KlogError, UsageError
from klog.data_dir.root_files import read_small
from klog.formats.checkpoint import Malformed
from klog.tier.object_store import NEEDED

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers

_HASH_BYTES: Final = 64
_IV_BYTES: Final = 12
_KEY_BYTES: Final = 32


class PrivateKeys:
    """RSA keys in PEM files (PKCS#8 or PKCS#1), by their ids: *files*.

    Raises UsageError for a file that is none, UnreadableError, KlogError without the package.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._numbers = {key_id: _numbers(path) for key_id, path in files.items()}
        self._unwrapped = lru_cache(maxsize=64)(self._unwrap)

    def data_key(self, wrapped: str) -> AesKey | None:
        """Return the key in `KEYID:BASE64`: see `klog.tier.tier_layout.Keys`."""
        key_id, colon, _ = wrapped.partition(":")
        if not colon:
            raise ValueError("dataKey is not KEYID:BASE64")
        return self._unwrapped(wrapped) if key_id in self._numbers else None

    def _unwrap(self, wrapped: str) -> AesKey:
        key_id, _, text = wrapped.partition(":")
        try:
            sealed = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError("dataKey is no base64") from error
        return AesKey(_unwrap(sealed, self._numbers[key_id]))


class AesKey:
    """A key of a segment."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)

    def decrypt(self, data: bytes, aad: bytes) -> bytes:
        """Return the plain bytes: see `klog.tier.tier_layout.DataKey`."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(data[:_IV_BYTES], data[_IV_BYTES:], aad)
        except InvalidTag as error:
            raise ValueError("wrong key or damaged") from error


def _numbers(path: str) -> RSAPrivateNumbers:
    """Return the numbers of the key in a PEM file."""
    try:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError as error:
        raise KlogError(f"{path}: klog decrypts with cryptography; install it: {NEEDED}") from error
    content = read_small(path)
    if isinstance(content, Malformed):
        raise UsageError(content.reason)
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: no RSA private key in PEM without a password") from error
    if not isinstance(key, RSAPrivateKey):
        raise UsageError(f"{path}: a key, but none for RSA")
    return key.private_numbers()


def _mask(seed: bytes, size: int) -> bytes:
    """Return *size* bytes of mask.  RFC 8017, B.2.1 (MGF1)."""
    rounds = range(-(-size // _HASH_BYTES))
    return b"".join(hashlib.sha3_512(seed + number.to_bytes(4, "big")).digest() for number in rounds)[:size]


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _power(sealed: int, key: RSAPrivateNumbers) -> int:
    """Return *sealed* to the power of the private exponent, by the primes: in a third of the time.  RFC 8017, 5.1.2."""
    by_p, by_q = pow(sealed, key.dmp1, key.p), pow(sealed, key.dmq1, key.q)
    return by_q + key.q * ((by_p - by_q) * key.iqmp % key.p)


def _unwrap(sealed: bytes, key: RSAPrivateNumbers) -> bytes:
    """Return the data key in *sealed*.  Raises ValueError."""
    size = (key.public_numbers.n.bit_length() + 7) // 8
    if len(sealed) != size or size < 2 * _HASH_BYTES + 2:
        raise ValueError("wrong key or damaged")
    message = _power(int.from_bytes(sealed, "big"), key).to_bytes(size, "big")
    masked_seed, masked_block = message[1 : 1 + _HASH_BYTES], message[1 + _HASH_BYTES :]
    seed = _xor(masked_seed, _mask(masked_block, _HASH_BYTES))
    block = _xor(masked_block, _mask(seed, len(masked_block)))
    label, padded = block[:_HASH_BYTES], block[_HASH_BYTES:]
    zeros, one, data_key = padded.partition(b"\1")
    if message[0] or label != hashlib.sha3_512(b"").digest() or not one or any(zeros) or len(data_key) != _KEY_BYTES:
        raise ValueError("wrong key or damaged")
    return data_key
