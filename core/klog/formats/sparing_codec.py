"""Decompression for readers that make objects of Python of records: all batches of a log share a bound.

A kilobyte may unpack to 128 MiB, and that to gigabytes of objects; no broker writes an internal topic like that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from klog.formats.codec import MAX_OUTPUT, CodecError, Decompressor

if TYPE_CHECKING:
    from klog.formats.codec import Buffer

_Decompress: TypeAlias = "Callable[[Buffer, int], bytes | bytearray]"
_FREE_BYTES: Final = 32 << 20
_FREE_BYTES_PER_BYTE: Final = 64


def sparing_codecs() -> tuple[_Decompress, ...]:
    """Return the functions of a Decompressor, for the batches of one log.

    Together they may unpack to 32 MiB and sixty-four times their bytes in the log; a batch that exceeds that is a
    CodecError.
    """
    decompressor, room = Decompressor(), _FREE_BYTES
    decompressor.advice = "all that the log may still unpack to, for its few bytes"

    def bounded(function: _Decompress) -> _Decompress:
        def decompress(data: Buffer, magic: int) -> bytes | bytearray:
            nonlocal room
            room += _FREE_BYTES_PER_BYTE * len(data)
            decompressor.limit = min(room, MAX_OUTPUT)
            made = function(data, magic)
            if len(made) > room:
                raise CodecError(f"more than {room} bytes when decompressed ({decompressor.advice})")
            room -= len(made)
            return made

        return decompress

    return tuple(map(bounded, decompressor.functions))
