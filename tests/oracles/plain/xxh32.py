"""xxHash32, word by word: lz4 frames protect their header and blocks with it."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & _MASK


def _stripes(data: bytes) -> tuple[int, int]:
    """Return the state after all whole stripes of 16 bytes, and how many bytes they were."""
    lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        for lane in range(4):
            word = int.from_bytes(data[at + 4 * lane : at + 4 * lane + 4], "little")
            lanes[lane] = _rotate((lanes[lane] + word * _P2) & _MASK, 13) * _P1 & _MASK
    state = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    return state & _MASK, whole


def xxh32(data: bytes) -> int:
    """Return xxHash32 of *data* with seed 0."""
    state, at = _stripes(data) if len(data) >= 16 else (_P5, 0)
    state = (state + len(data)) & _MASK
    while at + 4 <= len(data):
        state = _rotate((state + int.from_bytes(data[at : at + 4], "little") * _P3) & _MASK, 17) * _P4 & _MASK
        at += 4
    for byte in data[at:]:
        state = _rotate((state + byte * _P5) & _MASK, 11) * _P1 & _MASK
    state = (state ^ (state >> 15)) * _P2 & _MASK
    state = (state ^ (state >> 13)) * _P3 & _MASK
    return state ^ (state >> 16)
