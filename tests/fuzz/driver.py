"""One process of the fuzzer: fills windows with mutated entries and calls everything in the kernel that reads them.

Windows hold thousands of entries, so that a call's cost is shared.  Prints how many went through scan and decode.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import io
import json
import sys
import tempfile
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.fuzz import seeds
from tests.fuzz.metadata import MetadataLogs
from tests.oracles.plain import encode
from tests.schemas.random_json import damaged, random_text

if TYPE_CHECKING:
    from klog.kernel import Rewriter, Window

ENTRIES = 3000
ORIGIN = b',"partition":3,"topic":"orders"'
CSV_ORIGIN = b'3,"orders"'
DONE, MORE, BAD_LENGTH = 0, 1, 2
OUTPUT_FULL, TO_COMPRESS, TO_CONVERT = 16, 17, 18
# Half of all bytes written mean something in a varint, a length or a flag.
TABLE = bytes(
    byte if byte < 128 else (0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x0F, 0xED, 0x22, 0x0A)[byte % 14]
    for byte in range(256)
)


def load_kernel(path: str) -> None:
    """Have the parts of the kernel in the folder *path* loaded in place of klog's own."""
    import klog.kernel

    assert hasattr(ctypes.CDLL(None), "__asan_init"), "no sanitizer is loaded: nothing would be found"
    klog.kernel.__path__.insert(0, path)
    assert sys.modules[klog.kernel.Window.__module__].__file__ == f"{path}/_window.abi3.so"


def given_back(data: memoryview, magic: int) -> bytes:
    """A codec whose streams are their content."""
    return bytes(data)


def int32s(count: int) -> memoryview:
    """Return room for *count* native numbers of 32 bits."""
    return memoryview(array("i", bytes(4 * count)))


Codecs = tuple[Callable[[memoryview, int], "bytes | bytearray"], ...]
Take = Callable[["Window"], None]


class Fuzzer:
    """Makes windows of mutated entries and takes them apart."""

    def __init__(self, seed: int, folder: Path) -> None:
        from klog.formats.codec import Decompressor
        from klog.kernel import KeyPlaces, KeyReader, KeySet, OffsetMap, Window

        self.make_window, self.chance, self.done = Window, Random(seed), 0
        self.metadata_logs = MetadataLogs(Random(seed), folder)
        self.new_reader = lambda: KeyReader(KeyPlaces(self.chance.randrange(1, 9)))
        self.reader = self.new_reader()
        self.keys = KeySet([b"key", b"key-1", b"", b"a" * 100])
        self.named: Codecs = (given_back,) * 8
        self.real = Decompressor(1 << 20).functions
        self.plain_seeds = seeds.plain_entries() + seeds.named_entries()
        self.real_seeds = seeds.real_entries()
        self.wide_seeds = seeds.wide_entries()
        self.window = Window(1 << 20, 4096, 1 << 16)
        self.masks = [self.mask(1 << 16) for _ in range(40)]
        self.maps = [OffsetMap(24 * slots, bytes(16), md5) for slots in (10, 2000, 40_000) for md5 in (False, True)]
        self.takes = (
            self.as_json, self.as_csv, self.as_text, self.as_columns, self.as_objects, self.as_keys, self.as_decoded,
        )  # fmt: skip

    # making

    def entries(self, count: int, real: bool, wide: bool = False) -> list[bytes]:
        some = self.wide_seeds if wide else self.real_seeds if real else self.plain_seeds
        pool = seeds.broken(some, self.chance, 1 + count // 12)
        return self.chance.choices(pool, k=count)

    def mask(self, size: int) -> bytes:
        """Return bytes that are 0 but for about one in eighty."""
        places, values = array("I", self.chance.randbytes(size // 20)), self.chance.randbytes(size // 80)
        mask = bytearray(size)
        # The upper half of the product with the size is as good as a random number below it.
        for place, value in zip(places, values, strict=False):
            mask[place * size >> 32] = value
        return bytes(mask)

    def content(self, entries: list[bytes]) -> tuple[bytearray, list[int]]:
        """Return the bytes of *entries*, about one of them changed in each, and where each begins."""
        starts = list(accumulate((len(entry) for entry in entries), initial=0))
        size = starts[-1]
        masks = self.chance.choices(self.masks, k=-(-size // len(self.masks[0])))
        shift = self.chance.randrange(len(self.masks[0]))
        mask = b"".join((masks[0][shift:], *masks, masks[0][:shift]))[:size]
        # Numbers as large as the window: a byte-wise loop would cost more than everything that the kernel does.
        changed = int.from_bytes(b"".join(entries), "little") ^ int.from_bytes(mask, "little")
        data = bytearray(changed.to_bytes(size, "little"))
        self.say_something(data)
        if self.chance.random() < 0.85:  # else the chain of sizes breaks, too
            for at, entry in zip(starts, entries, strict=False):
                data[at + 8 : at + 12] = entry[8:12]
        return data, starts

    def say_something(self, data: bytearray) -> None:
        """Put a few bytes into *data* that mean something as a varint, a length, a flag or a character."""
        changes = len(data) // 500
        values = self.chance.randbytes(changes).translate(TABLE)
        for place, value in zip(array("I", self.chance.randbytes(4 * changes)), values, strict=True):
            data[place * len(data) >> 32] = value

    def fill(self, window: Window, data: bytes | bytearray, starts: list[int]) -> None:
        """Load and scan: after a break in the chain of entries, continue at the next real one."""
        window.buffer(len(data))[: len(data)] = data
        window.load(self.chance.choice((0, 4096, 2**40)), len(data))
        lenient, check = self.chance.random() < 0.2, self.chance.random() < 0.5
        at = 0
        while at < len(data) and window.scan(at, lenient, check=check) != DONE:
            following = bisect_right(starts, window.next_at)
            at = starts[following] if following < len(starts) else len(data)
        bad = window.check(0, window.count)
        assert (window.first_bad(0, window.count) == window.count) == (bad == 0)
        count, ends, lasts = window.edges()
        assert 0 <= count <= window.count == len(ends) // 8 == len(lasts) // 8

    def decode(self, window: Window, take: Take, codecs: Codecs, often: bool) -> None:
        """Decode all batches, around the broken ones, and give the rows to *take*.

        *often*: at every broken batch, the part before the break in it too; else only whole ones, together: faster.
        """
        # Whole: as for Kafka's text, where a message's value may claim more than there is.
        first, whole, count = 0, take == self.as_text and self.chance.random() < 0.5, window.count
        while first < count:
            stop = window.decompress(first, count, codecs, self.chance.choice((1 << 12, 1 << 18)))
            if not often:
                self.skip_broken(window, first, stop)
            assert first <= window.first_unsound(first, stop) <= stop
            assert first <= self.reader.take(window, first, stop, self.chance.randrange(3), 50, 2**62) <= stop
            window.begin(first, stop, whole)
            while True:
                status = window.decode()
                take(window)
                if status == DONE:
                    break
                if status != MORE:
                    assert often, "broken only when looked at again"
                    window.begin(window.decoding + 1, stop, whole)
            first = stop + (window.error is not None)
        self.done += count

    def skip_broken(self, window: Window, first: int, stop: int) -> None:
        window.begin(first, stop)
        while (status := window.decode()) != DONE:
            if status != MORE:
                window.skip(window.decoding)
                window.begin(window.decoding + 1, stop)

    # taking apart

    def drain(self, window: Window, write: Callable[[int], int]) -> Iterator[bytes]:
        row = 0
        while row < window.records:
            row = write(row)
            yield bytes(window.output())
            window.flushed()

    def as_json(self, window: Window) -> None:
        values = self.chance.randrange(5)
        for text in self.drain(window, lambda row: window.json_lines(row, ORIGIN, values)):
            line = text[: text.index(b"\n")]
            assert json.loads(line)["topic"] == "orders"

    def lines(self, window: Window) -> Iterator[bytes]:
        return self.drain(window, lambda row: window.json_lines(row, ORIGIN, 0))

    def as_decoded(self, window: Window) -> None:
        """JSON lines with values that are JSON in the places of framed ones."""
        from klog.kernel import framed_run, json_values

        values: list[bytes | None] = []
        while len(values) < window.records:
            found = json_values(framed_run(window, len(values), window.records)[1])
            values += found or [self.chance.choice((None, b"{}", b'"' + b"a" * 300 + b'"'))]
        facts = [b',"value_schema_id":7'] * len(values)
        for text in self.drain(window, lambda row: window.json_lines(row, ORIGIN, 0, -1, values[row:], facts[row:])):
            assert json.loads(text[: text.index(b"\n")])["topic"] == "orders"

    def as_csv(self, window: Window) -> None:
        values = self.chance.randrange(5)
        for text in self.drain(window, lambda row: window.csv_lines(row, CSV_ORIGIN, values)):
            fields = next(csv.reader(io.StringIO(text[:20_000].decode("utf-8", "replace"), newline="")))
            if len(text) < 20_000 or len(fields) > 8:
                assert not fields[7] or isinstance(json.loads(fields[7]), list)
            assert len(fields) == 19 or len(text) > 20_000

    def as_text(self, window: Window) -> None:
        others = window.unknown_controls()
        contents: list[bytes | None] | None = None
        if others:
            contents = [None] * window.records
            for row in others:
                contents[row] = b" something else"
        flags = self.chance.randrange(16) | 1
        window.cut_records(min((row for row, _, _ in window.overlong_values()), default=window.records))
        contents = contents[: window.records] if contents else None
        for text in self.drain(window, lambda row: window.text_lines(row, window.records, flags, contents)):
            text.decode("utf-8")
        while not window.batch_lines(window.decoding):
            window.flushed()
        window.flushed()

    def as_columns(self, window: Window) -> None:
        rows = window.records
        for column in range(10):
            for width in (1, 2, 4, 8):
                window.numbers(column, width, bytearray(max(1, width * rows)), bytearray(rows // 8 + 1))
        key_bytes, value_bytes, count, header_keys, header_values = window.content_sizes()
        first = self.chance.randrange(20)  # as if so many rows were there already
        bits = bytearray((first + rows) // 8 + 1)
        for values, size in ((False, key_bytes), (True, value_bytes)):
            window.binary(values, bytearray(max(1, size)), int32s(first + rows + 1), bits, first)
        lists, key_ends, value_ends = (int32s(n + 1) for n in (first + rows, count, count))
        keys, header_bits = bytearray(header_keys + 1), bytearray(count // 8 + 1)
        window.headers(lists, keys, key_ends, bytearray(header_values + 1), value_ends, header_bits, first)

    def as_objects(self, window: Window) -> None:
        rows = window.records
        if rows:
            for row in {0, rows - 1, self.chance.randrange(rows)}:
                offset, _, key, value, headers, _, batch = window.record(row)
                assert -(2**63) <= offset < 2**63
                assert 0 <= batch < window.count
                size = sum(len(part or b"") for pair in ((key, value), *headers) for part in pair)
                assert size <= 1 << 20
            window.ends()
        window.bad_inner_crcs()
        window.gaps()
        window.times()
        window.keep(50, 2**62, 0, 2**62, self.chance.random() < 0.5, self.keys if self.chance.random() < 0.5 else None)
        self.as_json(window)

    def as_keys(self, window: Window) -> None:
        """A full map is emptied and continues at its stop; the last key put is there with its offset."""
        self.reader.add(window, 7)
        if self.chance.random() < 0.05:
            self.reader.close()
            self.reader = self.new_reader()
        table, start, row = self.chance.choice(self.maps), self.chance.choice((0, 50, 2**62)), 0
        while row < window.records:
            table.clear()
            stop = table.fill(window, row, start)
            assert stop == window.records or (stop > row and table.entries == table.usable)
            if table.entries:
                some = (window.record(i) for i in range(stop - 1, row - 1, -1))
                keys = (key for offset, _, key, *_ in some if offset == table.last_put and key is not None)
                assert any(table.get(key) == table.last_put for key in keys)
            row = stop

    def as_batches(self, window: Window) -> None:
        row, csv_rows, count = 0, self.chance.random() < 0.5, window.count
        while row < count:
            row = window.batch_rows(row, count, csv_rows, CSV_ORIGIN if csv_rows else ORIGIN)
            window.flushed()
        for number in self.chance.choices(range(count), k=3) if count else ():
            window.batch(number)
            window.batch_head(number)
            window.copy(window.at(number), window.at(number) + 17)
        window.transactional(0, count)
        window.first_bad(0, count)
        window.first_unknown_codec(0, count)
        window.skip_outside(3, 2**31, 0)

    # rounds

    def many(self) -> None:
        """Thousands of entries in one window, taken apart in one of the ways."""
        real = self.chance.random() < 0.05
        data, starts = self.content(self.entries(ENTRIES // 10 if real else ENTRIES, real))
        self.fill(self.window, data, starts)
        codecs: Codecs = self.real if real else self.named
        self.decode(self.window, self.chance.choice(self.takes), codecs, often=self.chance.random() < 0.15)
        self.as_batches(self.window)

    def tight(self) -> None:
        """Entries alone, in memory that ends with them: what reads on behind one is caught."""
        data, starts = self.content(self.entries(150, real=False, wide=self.chance.random() < 0.3))
        for start, end in pairwise(starts):
            window = self.make_window(end - start, self.chance.choice((1, 2, 100)), 2048)
            self.fill(window, data[start:end], [0])
            self.decode(window, self.chance.choice(self.takes), self.named, often=True)

    def twice(self) -> None:
        """The same window with room for much and for little must give the same lines."""
        data, starts = self.content(self.entries(300, real=False, wide=self.chance.random() < 0.3))
        state = self.chance.getstate()
        answers: list[list[bytes]] = []
        for window in (self.make_window(len(data), 4096, 1 << 20), self.make_window(len(data), 7, 2048)):
            self.chance.setstate(state)
            answers.append([])
            self.fill(window, data, starts)
            self.decode(window, lambda w: answers[-1].extend(self.lines(w)), self.named, often=True)
        answers = [[b"".join(lines)] for lines in answers]
        assert answers[0] == answers[1], "the size of the rooms changes what is read"

    def search(self) -> None:
        """Every entry that a search after damage finds is one; it ends, and never behind the window."""
        data, _ = self.content(self.entries(300, real=True))
        size = self.chance.randrange(1, len(data))
        window = self.make_window(size, 1, 1)
        window.buffer(size)[:size] = data[:size]
        window.load(0, size)
        readable = self.chance.choice((size, len(data)))
        at, status, found = 0, DONE, 0
        while status != BAD_LENGTH and at < size and found < 50:
            status, at = window.find(at, readable, 0, 2**40)
            assert at <= size
            if status == DONE:
                assert window.scan(at) is not None
                found += 1
            at += 1
            window.drop(0)
        window.zeros(self.chance.randrange(size))

    def walk(self) -> None:
        """A walk along headers: a batch that the window holds in part has a row, and the rest of it is not read."""
        data, starts = self.content(self.entries(300, real=True))
        size = self.chance.randrange(1, len(data))
        window = self.make_window(size, 8, 1)
        window.buffer(size)[:size] = data[:size]
        window.load(0, size)
        at = 0
        while at < size and window.scan(at, False, len(data) - size) != DONE and window.next_at < size:
            following = bisect_right(starts, window.next_at)
            at = starts[following] if following < len(starts) else size
        for target in (-1, 0, self.chance.randrange(2**40), 2**62):
            assert window.first_reaching(target) <= window.count
            assert window.first_as_late(target) <= window.count
        window.latest()
        assert all(window.row_at(window.at(i)) == i for i in range(window.count))
        window.check(0, window.count)
        self.decode(window, lambda _: None, self.named, often=True)

    def compact(self) -> None:
        """Both passes of a compaction over one window: a small map, and the remains of batches that may be broken."""
        from klog.kernel import OffsetMap, OpenTransactions, Rewriter

        real = self.chance.random() < 0.2
        data, starts = self.content(self.entries(150, real))
        window, target = self.make_window(len(data), 50, 1), self.make_window(self.chance.choice((100, 1 << 16)), 1, 1)
        window.buffer(len(data))[: len(data)] = data
        window.load(0, len(data))
        at = 0
        while at < len(data) and window.scan(at) != DONE:
            following = bisect_right(starts, window.next_at)
            at = starts[following] if following < len(starts) else len(data)
        window.check(0, window.count)
        offsets = OffsetMap(self.chance.choice((100, 1 << 16)), bytes(16), self.chance.random() < 0.5)
        offsets.clear(self.chance.choice((0, 5, 2**63 - 1)))
        codecs: Codecs = self.real if real else self.named
        self.decode(window, lambda w: offsets.fill(w, 0, self.chance.choice((0, 5))), codecs, often=True)
        decisions = bytearray(self.chance.choices(range(4), k=window.count))
        at, transactions = 0, OpenTransactions({3: (0, 3, 0, 9, 9)}, (77,))
        while (at := transactions.take(window, at, decisions, self.chance.choice((-1, 2**62)))) < window.count:
            at += 1
        latest, now = self.chance.choice((-1, 50, 2**62)), self.chance.choice((0, 2**62))
        flags = self.chance.random() < 0.5, self.chance.random() < 0.3
        self.rewrite(window, Rewriter(offsets, target, latest, now, 2**62, *flags), decisions, codecs)

    def rewrite(self, window: Window, rewriter: Rewriter, decisions: bytearray, codecs: Codecs) -> None:
        """Let *rewriter* write the remains of all batches, around the broken ones."""
        first, count = 0, window.count
        rewriter.skip_superseded(window)
        while first < count:
            ready = window.decompress(first, count, codecs, 1 << 18)
            rewriter.begin(window, first, ready, decisions, self.chance.random() < 0.5)
            while (status := rewriter.run()) != DONE:
                if status == OUTPUT_FULL:
                    assert len(rewriter.target.buffer(0)) >= rewriter.used
                    rewriter.flushed()
                elif status == TO_COMPRESS:
                    rewriter.compressed(bytes(rewriter.plain_records()))
                else:
                    at = rewriter.at
                    if status == TO_CONVERT:
                        window.begin(at, at + 1)
                        while window.decode() == MORE:
                            assert len(rewriter.judged()) == window.records
                        rewriter.append(b"made elsewhere", 1)
                    rewriter.begin(window, at + 1, ready, decisions)
            first = max(ready, first + 1)
        self.done += count

    def huge(self) -> None:
        """A line that is made in parts, because its value is too large for one."""
        if self.chance.random() > 0.02:
            return
        value = self.chance.randbytes(1000).translate(TABLE) * 3500
        data = encode.batch([encode.Record(1, 2, b"key", value, ((b"name", b"x"),))])
        window = self.make_window(len(data), 1, 2048)
        self.fill(window, data, [0])
        window.begin(0, 1)
        assert (window.decode(), window.records) == (DONE, 1)
        for as_csv, origin in ((False, ORIGIN), (True, CSV_ORIGIN)):
            ((head, _, middle),), tail = window.split_line(0, as_csv, origin, 0)
            assert not isinstance(middle, int)
            assert (len(middle), tail[-1:]) == (len(value), b"\n")
            assert head.startswith(b"1,2," if as_csv else b'{"offset":1,')

    def strings(self) -> None:
        """Text as Java prints it, and the two ways to a checksum."""
        from klog.kernel import (
            crc32,
            crc32_shift,
            crc32c,
            crc32c_portable,
            crc32c_shift,
            is_utf8,
            java_string,
            json_text,
        )

        data = bytes(self.chance.randbytes(self.chance.randrange(1, 3000)).translate(TABLE))
        text = java_string(data).decode("utf-8")
        assert is_utf8(data) == ("\ufffd" not in text or text.encode() == data)
        quoted = json_text(data)
        assert quoted == json_text(data, portable=True)
        assert quoted is None or json.loads(b'"' + quoted + b'"').encode() == data
        start = self.chance.randrange(len(data))
        assert crc32c(data[start:]) == crc32c_portable(data[start:])
        for checksum, shift in ((crc32c, crc32c_shift), (crc32, crc32_shift)):
            assert checksum(data[start:]) == checksum(data) ^ shift(checksum(data[:start]), len(data) - start)

    def json_texts(self) -> None:
        """JSON, whole and damaged: nothing but JSON is taken for it."""
        from klog.kernel import json_values

        contents = [random_text(self.chance) for _ in range(50)]
        contents += [damaged(self.chance, content) for content in contents]
        for found in json_values(contents):
            if found is not None:
                json.loads(found)
        self.done += len(contents)

    def metadata(self) -> None:
        """Metadata logs: some files of a quorum, through all readers."""
        self.metadata_logs.spoil_and_read()
        self.done += 1

    def run(self, seconds: float, inputs: int) -> None:
        """Continue for *seconds* or until *inputs* are done, whichever is not 0."""
        end = time.monotonic() + seconds if seconds else float("inf")
        rounds = (self.many,) * 12 + (
            self.tight,
            self.twice,
            self.strings,
            self.json_texts,
            self.search,
            self.walk,
            self.huge,
            self.compact,
            self.metadata,
        )
        while time.monotonic() < end and (not inputs or self.done < inputs):
            self.chance.choice(rounds)()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kernel")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--inputs", type=int, default=0)
    options = parser.parse_args()
    load_kernel(options.kernel)
    with tempfile.TemporaryDirectory(prefix="klog-fuzz-") as folder:
        fuzzer = Fuzzer(options.seed, Path(folder))
        try:
            fuzzer.run(options.seconds, options.inputs)
        finally:
            print(fuzzer.done, flush=True)


if __name__ == "__main__":
    main()
