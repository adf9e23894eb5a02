"""Writes the three objects of a segment as Aiven's plugin does, from its documentation; nothing is shared with klog."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from typing import Any, NamedTuple

import zstandard

NAMES = {
    "offset": "index",
    "timestamp": "timeindex",
    "producerSnapshot": "snapshot",
    "leaderEpoch": "leader_epoch_checkpoint",
    "transaction": "txnindex",
}


class Objects(NamedTuple):
    """The contents of the three objects."""

    log: bytes
    indexes: bytes
    manifest: bytes


def _mask(seed: bytes, size: int) -> bytes:
    return b"".join(hashlib.sha3_512(seed + struct.pack(">I", i)).digest() for i in range(size // 64 + 1))[:size]


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")


def wrapped(key: bytes, modulus: int, exponent: int = 65537) -> bytes:
    """Return *key* sealed for an RSA key: OAEP with SHA3-512 for the label and the mask."""
    size = (modulus.bit_length() + 7) // 8
    block = hashlib.sha3_512(b"").digest() + bytes(size - len(key) - 2 * 64 - 2) + b"\1" + key
    seed = os.urandom(64)
    masked = _xor(block, _mask(seed, len(block)))
    message = b"\0" + _xor(seed, _mask(masked, 64)) + masked
    return pow(int.from_bytes(message, "big"), exponent, modulus).to_bytes(size, "big")


def _packed(sizes: list[int]) -> str:
    """Return sizes as the plugin packs them: base64 of a zstd frame."""
    if len(sizes) == 1:
        data = struct.pack(">ii", 1, sizes[0])
    else:
        base, most = min(sizes[:-1]), max(sizes[:-1])
        width = max(1, ((most - base).bit_length() + 7) // 8)
        data = struct.pack(">iib", len(sizes), base, width)
        data += b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1]) + struct.pack(">i", sizes[-1])
    return base64.b64encode(zstandard.compress(data)).decode()


def segment(
    log: bytes,
    parts: dict[str, bytes],
    chunk: int,
    *,
    compressed: bool = False,
    modulus: int | None = None,
    metadata: dict[str, Any] | None = None,
) -> Objects:
    """Return a segment's objects.  *parts*: contents by klog's names.  *modulus*: of the RSA key, to encrypt."""
    key, aad = os.urandom(32), os.urandom(32)

    def sealed(data: bytes) -> bytes:
        if modulus is None:
            return data
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        iv = os.urandom(12)
        return iv + AESGCM(key).encrypt(iv, data, aad)

    pieces = [log[at : at + chunk] for at in range(0, len(log), chunk)] or [b""]
    stored = [sealed(zstandard.compress(piece) if compressed else piece) for piece in pieces]
    facts: dict[str, Any] = {"originalChunkSize": chunk, "originalFileSize": len(log)}
    if compressed:
        facts |= {"type": "variable", "transformedChunks": _packed([len(piece) for piece in stored])}
    else:
        facts |= {"type": "fixed", "transformedChunkSize": len(stored[0]), "finalTransformedChunkSize": len(stored[-1])}
    indexes, places = b"", {}
    for name, part in NAMES.items():
        content = sealed(parts[part]) if parts.get(part) else b""
        places[name] = {"position": len(indexes), "size": len(content)} if part in parts else None
        indexes += content
    manifest: dict[str, Any] = {
        "version": "1",
        "chunkIndex": facts,
        "segmentIndexes": places,
        "compression": compressed,
    }
    if modulus is not None:
        data_key = base64.b64encode(wrapped(key, modulus)).decode()
        manifest["encryption"] = {"dataKey": f"key1:{data_key}", "aad": base64.b64encode(aad).decode()}
    manifest |= {"remoteLogSegmentMetadata": metadata} if metadata else {}
    return Objects(b"".join(stored), indexes, json.dumps(manifest).encode())
