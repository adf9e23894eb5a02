"""Dump, lookup and fetch out of a bucket: the answers of the directory, in few requests, from a server that refuses."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from klog.base.errors import UnreadableError
from klog.kernel import Window
from klog.log.reader import LogReader
from klog.tier.object_store import ObjectStream

from tests.commands.remote.test_fetch import contents
from tests.commands.remote.test_ls import KEYS, Klog, document
from tests.oracles.plain.encode import Record, batch
from tests.support.s3_server import Proxy, proxied, s3_server, upload, use
from tests.support.tiers import Situation, situation, unpack

NAMES = ("house", "aiven-zstd", "aiven-encrypted")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, server: str) -> Iterator[Callable[[Path, int], tuple[str, Proxy]]]:
    """Return a function that puts a directory into a bucket, behind a proxy that counts, and refuses one in so many."""
    opened = []
    numbers = iter(range(100))

    def put(folder: Path, refuse_every: int = 0) -> tuple[str, Proxy]:
        name = f"{re.sub('[^a-z0-9]', '-', folder.parent.name.lower())[:30]}-{next(numbers)}"
        upload(server, folder, f"of-{name}")
        context = proxied(server, refuse_every)
        proxy = context.__enter__()
        opened.append(context)
        use(monkeypatch, proxy.url)
        return f"s3://of-{name}", proxy

    yield put
    for context in opened:
        context.__exit__(None, None, None)


def keys(found: Situation) -> list[str]:
    return KEYS if "encrypted" in found.name else []


def size_of(request: tuple[str, str, Mapping[str, str]]) -> int | None:
    """The bytes that a request asks for; None for a whole object."""
    headers = {name.lower(): text for name, text in request[2].items()}
    asked = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
    return None if asked is None else int(asked[2]) - int(asked[1]) + 1


@pytest.mark.corpora
@pytest.mark.parametrize("name", NAMES)
def test_both_tiers_are_dumped_as_from_the_directory(
    klog: Klog, image: Callable[[str], Path], bucket: Callable[..., tuple[str, Proxy]], name: str
) -> None:
    """One request in five is refused at first."""
    found = situation(image, name)
    topic = sorted(found.clients)[0].rpartition("-")[0]
    words = ("dump", found.leader, "-t", topic, "-o", "jsonl", *keys(found), "--remote")
    ours = klog(*words, found.tier)
    url, proxy = bucket(found.tier, 5)
    theirs = klog(*words, url)
    assert (theirs.exit_code, theirs.stdout) == (0, ours.stdout)
    assert len(ours.stdout.splitlines()) > 50
    assert len(proxy.seen) > 5


@pytest.mark.corpora
@pytest.mark.parametrize("name", NAMES)
def test_a_fetch_is_that_of_the_directory(
    klog: Klog, image: Callable[[str], Path], bucket: Callable[..., tuple[str, Proxy]], tmp_path: Path, name: str
) -> None:
    """Eight segments at once, from a server that refuses one request in five."""
    found = situation(image, name)
    words = ("remote", "fetch", *found.data, *keys(found), "-o", "json", "--remote")
    document(klog(*words, found.tier, "--to", tmp_path / "ours"))
    url, _ = bucket(found.tier, 5)
    document(klog(*words, url, "--to", tmp_path / "theirs"))
    assert contents(tmp_path / "theirs") == contents(tmp_path / "ours")


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["house", "aiven-zstd"])
def test_a_fetch_reads_each_object_once(
    klog: Klog, image: Callable[[str], Path], bucket: Callable[..., tuple[str, Proxy]], tmp_path: Path, name: str
) -> None:
    found = situation(image, name)
    url, proxy = bucket(found.tier)
    document(klog("remote", "fetch", *found.data, "--remote", url, "--to", tmp_path / "back", "-o", "json"))
    logs = [request[1] for request in proxy.seen if request[1].endswith(".log")]
    assert len(logs) == len(set(logs))
    lists = [request for request in proxy.seen if "list-type" in request[1]]
    assert len(lists) == 1
    assert {request[0] for request in proxy.seen} == {"GET"}


def large(folder: Path, rows: int = 16) -> tuple[Path, Path]:
    """The fixture, with a log of *rows* batches of 16 KB in place of the first remote one of `fine-0`; its index leads
    to each batch."""
    data, tier = unpack(folder)
    log = min(tier.glob("kafka-tiered-storage/fine-0-*/*.log"))
    content, entries = b"", []
    for offset in range(rows):
        if offset:
            entries.append((offset, len(content)))
        content += batch([Record(offset, 1_750_000_000_000 + offset, b"k", b"v" * 16_000)], base_offset=offset)
    log.write_bytes(content)
    log.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *one) for one in entries))
    return data, tier


def test_a_lookup_takes_four_requests_and_one_range_of_the_log(
    klog: Klog, bucket: Callable[..., tuple[str, Proxy]], tmp_path: Path
) -> None:
    data, tier = large(tmp_path / "large")
    words = ("lookup", data, "-t", "fine", "-p", "0", "--offset", "7", "-o", "json", "--remote")
    ours = document(klog(*words, tier), 0, 4)
    url, proxy = bucket(tier)
    theirs = document(klog(*words, url), 0, 4)
    assert theirs == ours
    seen = [(request[1][-12:], {k.lower(): v for k, v in request[2].items()}.get("range")) for request in proxy.seen]
    assert len(seen) <= 4, seen
    of_log = [size_of(request) for request in proxy.seen if request[1].endswith(".log")]
    assert None not in of_log
    assert sum(size or 0 for size in of_log) < 200_000


@pytest.mark.parametrize("words", [("remote", "verify"), ("verify",)], ids=" ".join)
def test_a_check_reads_each_object_once(
    klog: Klog, bucket: Callable[..., tuple[str, Proxy]], tmp_path: Path, words: tuple[str, ...]
) -> None:
    """A log of a MiB was read in one request for each window."""
    data, tier = large(tmp_path / "large", 64)
    url, proxy = bucket(tier)
    shown = document(klog(*words, data, "--remote", url, "-o", "json"), 4)
    assert "remote-size-differs" in {one["id"] for one in shown["findings"]}
    logs = [request[1] for request in proxy.seen if request[1].endswith(".log")]
    assert len(logs) == len(set(logs)) == 7


def test_a_prefix_is_listed_once(klog: Klog, bucket: Callable[..., tuple[str, Proxy]], tmp_path: Path) -> None:
    """To recognize the layout, and to read the objects."""
    _, tier = unpack(tmp_path / "tiered")
    (tmp_path / "tiered/holder").mkdir()
    shutil.move(tier, tmp_path / "tiered/holder/inside")
    url, proxy = bucket(tmp_path / "tiered/holder")
    shown = document(klog("remote", "ls", "--remote", f"{url}/inside", "-t", "fine", "-o", "json"), 0, 4)
    assert shown["partitions"]
    lists = [request for request in proxy.seen if "list-type" in request[1]]
    assert len(lists) == 1


def test_a_server_that_is_gone_leaves_a_fetch_that_goes_on(
    klog: Klog, bucket: Callable[..., tuple[str, Proxy]], tmp_path: Path
) -> None:
    """It is a failure, no damage: nothing counts as missing in remote storage."""
    data, tier = unpack(tmp_path / "tiered")
    url, proxy = bucket(tier)
    words = ("remote", "fetch", data, "-t", "fine", "--remote", url, "--to", tmp_path / "back", "--jobs", "1")
    proxy.refuse_from = 8
    gone = klog(*words)
    assert gone.exit_code == 8
    assert b"SlowDown" in gone.stderr
    proxy.refuse_from = None
    assert klog(*words, "-o", "json").exit_code == 0
    assert klog("remote", "fetch", data, "-t", "fine", "--remote", tier, "--to", tmp_path / "whole").exit_code == 0
    assert contents(tmp_path / "back") == contents(tmp_path / "whole")


# an object as a stream


def test_a_stream_is_read_at_any_position(tmp_path: Path) -> None:
    """In order it is one request; elsewhere, and where a connection breaks, another one from there on."""
    data = bytes(range(256)) * 40
    asked: list[int] = []
    breaks = {3000}

    def stream(start: int) -> Iterator[memoryview]:
        asked.append(start)
        for at in range(start, len(data), 1000):
            for place in [one for one in breaks if at >= one]:
                breaks.discard(place)
                raise UnreadableError("broken")
            yield memoryview(data[at : at + 1000])

    log = ObjectStream("x", len(data), stream)
    found = b"".join(log.read(at, 700) for at in range(0, len(data), 700))
    assert found == data
    assert asked == [0, 3000]
    assert log.read(100, 50) == data[100:150]
    assert log.read(len(data) - 5, 50) == data[-5:]
    view = memoryview(bytearray(2000))
    assert log.read_into(9000, view) == len(data) - 9000
    assert bytes(view[: len(data) - 9000]) == data[9000:]
    assert log.next_data(7) == 7
    log.close()
    assert json.dumps(asked) == json.dumps([0, 3000, 100, len(data) - 5, 9000])


@pytest.mark.parametrize("value_bytes", [16_000, 200_000, 700_000, 3_000_000])
def test_a_log_is_read_in_one_request(value_bytes: int) -> None:
    """Its reader takes the rest of a window again, and a batch that is larger than the window from its start."""
    data = b"".join(
        batch([Record(offset, 0, b"k", b"v" * value_bytes)], base_offset=offset) for offset in range(12 << 20 >> 19)
    )
    asked: list[int] = []

    def stream(start: int) -> Iterator[memoryview]:
        asked.append(start)
        yield from (memoryview(data[at : at + 300_000]) for at in range(start, len(data), 300_000))

    reader, window = LogReader(ObjectStream("x", len(data), stream), checked=True), Window(output=0)
    found = b""
    while reader.next(window) is not None:
        found += window.copy(0, window.next_at)
    assert found == data
    assert asked == [0]


def test_a_read_elsewhere_is_another_request() -> None:
    data = bytes(range(256)) * 40
    asked: list[int] = []

    def stream(start: int) -> Iterator[memoryview]:
        asked.append(start)
        yield from (memoryview(data[at : at + 1000]) for at in range(start, len(data), 1000))

    log = ObjectStream("x", len(data), stream)
    for position, size in ((0, 1001), (999, 10), (999, 4000), (1500, 3499), (1500, 5000), (6000, 9000), (9999, 9000)):
        assert log.read(position, size) == data[position : position + size]
    assert asked == [0]
    log.read(5999, 1)
    assert asked == [0, 5999]


def test_a_stream_that_breaks_twice_at_a_byte_fails_there_and_again() -> None:
    """The next read asks again, and does not take the broken stream for one that has ended."""
    breaks = [True] * 4

    def stream(start: int) -> Iterator[memoryview]:
        if start and breaks.pop():
            raise UnreadableError("broken")
        yield memoryview(bytes(1000))
        raise UnreadableError("broken")

    log = ObjectStream("x", 2000, stream)
    for _ in range(2):
        with pytest.raises(UnreadableError):
            log.read(0, 2000)
