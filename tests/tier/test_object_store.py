"""Objects in a bucket are the objects of the directory, from a server that sometimes refuses; read in ranges."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from klog.base.errors import KlogError, UnreadableError, UsageError
from klog.tier.stores import MissingObjectError
from klog.tier.tier import Tier, open_tier

from tests.support.aiven_writer import segment
from tests.support.s3_server import proxied, s3_server, upload, use
from tests.support.tiers import situation
from tests.tier.test_chunks import PARTS, stored, text_of
from tests.tier.test_layouts import KEY


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


def contents(tier: Tier) -> dict[str, object]:
    """All plain bytes of a tier, by key."""
    listing = tier.list_segments()
    found: dict[str, object] = {"objects": listing.objects, "bytes": listing.bytes, "foreign": sorted(listing.foreign)}
    for partition in listing.partitions.values():
        for one in partition.segments.values():
            reader = tier.reader(one)
            log = reader.log()
            found[one.segment_id] = (
                log.read(0, log.size),
                [reader.read(part) for part in PARTS],
                sorted(one.sizes.items()),
            )
    return found


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["stuck", "aiven-encrypted", "aiven-plain"])
def test_a_bucket_is_read_as_the_directory(
    image: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, server: str, name: str
) -> None:
    """Also behind a server that answers 503 to one request in five."""
    place = situation(image, name).tier
    upload(server, place, f"of-{name}")
    ours = contents(open_tier(str(place), key_files=KEY))
    with proxied(server, refuse_every=5) as proxy:
        use(monkeypatch, proxy.url)
        assert contents(open_tier(f"s3://of-{name}", key_files=KEY)) == ours
        assert {method for method, *_ in proxy.seen} <= {"GET", "HEAD"}
        assert len(proxy.seen) > 50


def test_a_range_is_one_request_for_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    """The manifest as a whole, then the bytes of one chunk."""
    log = text_of(100_000)
    stored(tmp_path, segment(log, PARTS, 10_000, compressed=True))
    upload(server, tmp_path, "ranges")
    with proxied(server) as proxy:
        use(monkeypatch, proxy.url)
        tier = open_tier("s3://ranges", "aiven")
        (partition,) = tier.list_segments().partitions.values()
        (one,) = partition.segments.values()
        proxy.seen.clear()
        assert tier.reader(one).log().read(34_000, 100) == log[34_000:34_100]
        (manifest, chunk) = proxy.seen
        assert manifest[1].endswith("rsm-manifest")
        first, _, last = chunk[2].get("range", chunk[2].get("Range", "")).removeprefix("bytes=").partition("-")
        assert int(last) - int(first) < 10_000


def test_a_prefix_is_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    stored(tmp_path / "deep/er", segment(text_of(10), PARTS, 10))
    (tmp_path / "other").write_bytes(b"x")
    upload(server, tmp_path, "prefixed")
    use(monkeypatch, server)
    tier = open_tier("s3://prefixed/deep/er")
    assert (tier.list_segments().objects, tier.list_segments().foreign) == (3, [])
    assert open_tier("s3://prefixed/nothing").layout is None


def test_what_a_server_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    use(monkeypatch, server)
    for uri, error, text in (
        ("s3://no-such-bucket/x", UnreadableError, r"^s3://no-such-bucket/x: NoSuchBucket; credentials come from AWS_"),
        ("s3://", UsageError, "no bucket"),
    ):
        with pytest.raises(error, match=text):
            open_tier(uri)
    upload(server, Path(__file__).parent / "absent", "empty")
    with pytest.raises(MissingObjectError, match=r"^s3://empty/a/b: no such object"):
        open_tier("s3://empty").store.read("a/b", 10)
    use(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(UnreadableError, match="Connection refused"):
        open_tier("s3://empty")


def test_a_server_that_refuses_all_is_asked_again_before_it_is_said(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    with proxied(server, refuse_every=1) as proxy:
        use(monkeypatch, proxy.url)
        with pytest.raises(UnreadableError, match="SlowDown"):
            open_tier("s3://any")
        assert len(proxy.seen) == 3


def test_without_the_package_the_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(KlogError, match=r"pip install 'klog\[remote\]'"):
        open_tier("s3://bucket")
