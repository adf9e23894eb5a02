# Written by tools/make_kernel_face.py.
from klog.kernel._window import Window

Buffer = bytes | bytearray | memoryview

OUTPUT_FULL: int
TO_CONVERT: int

class OffsetMap:
    memory: int
    slots: int
    usable: int
    entries: int
    probes: int
    collisions: int
    last_put: int
    latest: int
    def __init__(self, memory: int, key: bytes | None = None, md5: bool = False, load_factor: float = ...) -> None: ...
    def clear(self, start: int = 0, part: int = 0, parts: int = 1) -> None: ...
    def put(self, key: Buffer, offset: int) -> None: ...
    def get(self, key: Buffer) -> int: ...
    def fill(self, window: Window, first: int, start: int) -> int: ...
    def keep_latest(self, window: Window, tombstones: bool) -> int: ...
    def digest_of(self, key: Buffer) -> bytes: ...
    def slots_of(self, key: Buffer, attempts: int) -> list[int]: ...

class Rewriter:
    retain_legacy: bool
    records_in: int
    superseded: int
    keyless: int
    tombstones: int
    expired: int
    target: Window
    at: int
    used: int
    wanted: int
    batches_in: int
    batches_out: int
    records_out: int
    markers_in: int
    markers_out: int
    discarded: int
    untouched: int
    def __init__(
        self, offsets: OffsetMap, target: Window, latest: int, now: int, retention: int, convert: bool = False,
        by_age: bool = False
    ) -> None: ...  # fmt: skip
    def skip_superseded(self, window: Window) -> None: ...
    def begin(
        self, window: Window, first: int, end: int, decisions: bytearray, retain_legacy: bool = False
    ) -> None: ...  # fmt: skip
    def run(self) -> int: ...
    def flushed(self) -> None: ...
    def plain_records(self) -> memoryview: ...
    def compressed(self, data: Buffer) -> None: ...
    def judged(self) -> bytes: ...
    def append(self, data: Buffer, records: int) -> bool: ...
