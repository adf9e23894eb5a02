# Written by tools/make_kernel_face.py.
from klog.kernel._window import Window

Buffer = bytes | bytearray | memoryview

def ascending_run(
    window: Window, first: int, end: int, last_offset: int, epoch: int, ceiling: int
) -> tuple[int, int]: ...  # fmt: skip
def last_batch_end(data: Buffer) -> tuple[int, int]: ...
def batch_identities(window: Window, first: int, end: int) -> bytes: ...
def flipped_bit(difference: int, size: int, zlib: bool = False) -> int | None: ...

class SegmentSurvey:
    base: int
    batches: int
    last_offset: int
    max_timestamp: int
    max_timestamp_offset: int
    max_timestamp_position: int
    next_base: int
    records: int
    legacy: int
    first_offset: int
    producer_batches: int
    codecs: int
    end: int
    dropped: int
    def __init__(self, base: int, next_base: int, offset_entries: bytes, time_entries: bytes) -> None: ...
    def walk(self, window: Window, first: int, end: int) -> None: ...
    def damaged(self, start: int, end: int) -> None: ...
    def finish(self) -> None: ...
    @property
    def epochs(self) -> list[tuple[int, int, int]]: ...
    @property
    def events(self) -> list[tuple[str, int, int, int]]: ...

class LogLandmarks:
    latest: int
    ahead: int
    def __init__(self, least: int) -> None: ...
    @property
    def pauses(self) -> list[int]: ...
    def take(self, window: Window, first: int, end: int) -> list[tuple[int, int]]: ...
