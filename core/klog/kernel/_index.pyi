# Written by tools/make_kernel_face.py.
from klog.kernel._window import Window

Buffer = bytes | bytearray | memoryview

def offset_index_used(entries: Buffer, log_bytes: int) -> tuple[int, str]: ...
def time_index_used(entries: Buffer) -> tuple[int, str]: ...

class IndexBuilder:
    base: int
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    last_offset: int
    highest_offset: int
    batches: int
    records: int
    latest_epoch: int
    segment_bytes: int
    segment_ms: int
    rolling_timestamp: int
    def __init__(
        self, base: int, interval: int = 4096, most_bytes: int = ..., latest_epoch: int = ..., segment_bytes: int = ...,
        segment_ms: int = ...
    ) -> None: ...  # fmt: skip
    def walk(self, window: Window, first: int, end: int) -> int: ...
    def resume(self, window: Window, first: int, end: int) -> int: ...
    def continue_at(
        self, position: int, rolling_timestamp: int, entries: int, times: int, last_time: int = ...,
        last_time_offset: int = ...
    ) -> None: ...  # fmt: skip
    def take_entries(self) -> tuple[bytes, bytes]: ...
    def finish(self) -> None: ...
    @property
    def stop(self) -> str: ...
    @property
    def offset_entries(self) -> bytes: ...
    @property
    def time_entries(self) -> bytes: ...
    @property
    def epochs(self) -> list[tuple[int, int]]: ...
