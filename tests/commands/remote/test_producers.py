"""Producer snapshots and transaction indexes in the tier: those of another place are found, and made again right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.remote.test_fetch import fetched
from tests.commands.remote.test_ls import Klog, document
from tests.conftest import writable_copy
from tests.support.tiers import Situation, situation

TX = ("-t", "tx", "-p", "0")


@pytest.fixture
def house(image: Callable[[str], Path], tmp_path: Path) -> Situation:
    """Producer 2 until offset 70, then a transaction of producer 12 from 71 on, aborted at 114; others inside."""
    found = situation(image, "house")
    return found._replace(tier=writable_copy(found.tier, tmp_path / "tier"))


def stored(found: Situation, name: str) -> Path:
    """The object of a segment by its start offset and kind: `73.snapshot`."""
    start, kind = name.split(".")
    (path,) = found.tier.glob(f"*/tx-0-*/{int(start):020}-*.{kind}")
    return path


def ids(klog: Klog, found: Situation, *more: str) -> list[tuple[str, str]]:
    """The findings, each with the file of the object: `73.snapshot`."""
    ran = klog("remote", "verify", *found.data, "--remote", found.tier, *TX, "-o", "json", *more)
    rows = document(ran, 0, 4)["findings"]
    names = [Path(one["file"]).name for one in rows if one["severity"] != "note"]
    shown = [f"{int(name[:20])}.{name.rpartition('.')[2]}" for name in names]
    return list(zip([one["id"] for one in rows if one["severity"] != "note"], shown, strict=True))


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["house", "house391", "unclean", "gappy", "interrupted", "aiven-zstd"])
def test_snapshots_of_brokers_agree(klog: Klog, image: Callable[[str], Path], name: str) -> None:
    found = situation(image, name)
    ran = klog("remote", "verify", *found.data, "--remote", found.tier, "-o", "json")
    assert "snapshot-disagrees" not in {one["id"] for one in document(ran, 0, 4)["findings"]}


@pytest.mark.corpora
@pytest.mark.parametrize("other", ["30", "100"])
def test_a_snapshot_of_another_segment_is_found(klog: Klog, house: Situation, tmp_path: Path, other: str) -> None:
    """The fetched log has the snapshot that the broker wrote, rebuilt from the log."""
    own = stored(house, "50.snapshot")
    content = own.read_bytes()
    own.write_bytes(stored(house, f"{other}.snapshot").read_bytes())
    assert ids(klog, house) == [("snapshot-disagrees", "50.snapshot")]
    (partition,) = fetched(klog, house, tmp_path / "back", *TX).values()
    assert partition["rebuilt"] == [f"{60:020}.snapshot"]
    assert (tmp_path / f"back/tx-0/{60:020}.snapshot").read_bytes() == content


@pytest.mark.corpora
@pytest.mark.parametrize("start", [10, 60, 73, 80, 100])
def test_a_snapshot_is_rebuilt_from_the_one_before(klog: Klog, house: Situation, tmp_path: Path, start: int) -> None:
    """With the producers that the segment itself does not show, and the beginnings of open transactions."""
    own = stored(house, f"{start}.snapshot")
    content = own.read_bytes()
    own.unlink()
    (partition,) = fetched(klog, house, tmp_path / "back", *TX).values()
    (name,) = partition["rebuilt"]
    rebuilt = (tmp_path / "back/tx-0" / name).read_bytes()
    assert (len(rebuilt), sorted(rebuilt[10:])) == (len(content), sorted(content[10:]))
    assert klog("verify", tmp_path / "back", "--deep", "-o", "json").exit_code == 0


@pytest.mark.corpora
@pytest.mark.parametrize("content", [b"", b"\0", None])
def test_a_lost_snapshot_does_not_make_the_next_index_wrong(
    klog: Klog, house: Situation, content: bytes | None
) -> None:
    """The ABORT marker of a transaction that began before the segment agrees with its entry."""
    snapshot = stored(house, "100.snapshot")
    snapshot.unlink()
    if content is not None:
        snapshot.write_bytes(content)
    finding = ("remote-snapshot-missing" if content is None else "snapshot-corrupt", "100.snapshot")
    assert ids(klog, house) == [finding]
    index = stored(house, "114.txnindex")
    content = index.read_bytes()
    index.write_bytes(content[:25] + bytes([content[25] ^ 1]) + content[26:])  # the offset of the marker
    assert ids(klog, house)[:2] == [finding, ("txn-index-disagrees", "114.txnindex")]
    index.write_bytes(b"")
    assert ids(klog, house) == [finding, ("txn-index-disagrees", "114.txnindex")]


@pytest.mark.corpora
@pytest.mark.parametrize("kind", ["empty", "producer"])
def test_a_wrong_transaction_index_is_rebuilt(klog: Klog, house: Situation, tmp_path: Path, kind: str) -> None:
    """Otherwise consumers of committed records would get aborted ones from the fetched log."""
    index = stored(house, "114.txnindex")
    content = index.read_bytes()
    index.write_bytes(b"" if kind == "empty" else content[:9] + bytes([content[9] ^ 1]) + content[10:])
    (partition,) = fetched(klog, house, tmp_path / "back", *TX).values()
    assert partition["rebuilt"] == [f"{114:020}.txnindex"]
    assert (tmp_path / f"back/tx-0/{114:020}.txnindex").read_bytes() == content
