"""A directory as a store: every file once, whatever lies there, and not a byte is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from klog.base.errors import UnreadableError, UsageError
from klog.tier.directory_store import DirectoryStore
from klog.tier.stores import MissingObjectError, Store
from klog.tier.tier import open_store

from tests.data_dir.test_log_dir import powerless


def names(store: Store) -> dict[str, int | None]:
    return {one.key: one.size for one in store.objects()}


def test_every_file_has_its_key_and_size(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "top").write_bytes(b"123")
    (tmp_path / "a" / "b" / "deep").write_bytes(b"12345")
    odd = os.fsdecode(b"\xff\xfe")
    (tmp_path / "a" / odd).write_bytes(b"1")
    store = open_store(str(tmp_path))
    assert names(store) == {"top": 3, "a/b/deep": 5, f"a/{odd}": 1}
    os.utime(tmp_path / "top", ns=(0, 1_234_567_000_000))
    assert next(one.modified_ms for one in store.objects() if one.key == "top") == 1_234_567


def test_links_are_not_followed_into_directories(tmp_path: Path) -> None:
    """A link to a directory above would be walked for ever."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to("self")
    (tmp_path / "a" / "nothing").symlink_to("absent")
    (tmp_path / "a" / "file").write_bytes(b"12")
    (tmp_path / "a" / "good").symlink_to("file")
    os.mkfifo(tmp_path / "a" / "pipe")
    found = names(open_store(str(tmp_path)))
    assert found == {"a/loop": None, "a/self": None, "a/nothing": None, "a/file": 2, "a/good": 2, "a/pipe": None}


def test_objects_are_read_in_part_and_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    store = DirectoryStore(str(tmp_path))
    with store.open("x") as found:
        assert (found.size, found.read(2, 3), found.read(8, 9)) == (10, b"234", b"89")
    assert (store.read("x", 10), store.read("x", 4)) == (b"0123456789", b"01234")


@pytest.mark.parametrize(
    "key", ["absent", "x/y", "../outside", "a/../../outside", "/etc/passwd", "", ".", "a//b", "a\0b"]
)
def test_no_key_leads_out_of_the_directory(tmp_path: Path, key: str) -> None:
    """Keys are made of the names of topics, which may be anything in damaged metadata."""
    (tmp_path / "tier" / "a").mkdir(parents=True)
    (tmp_path / "tier" / "x").write_bytes(b"1")
    (tmp_path / "outside").write_bytes(b"secret")
    store = open_store(str(tmp_path / "tier"))
    for read in (lambda: store.read(key, 9), lambda: store.open(key)):
        with pytest.raises(MissingObjectError):
            read()


def test_a_place_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    for uri, error, text in (
        (str(tmp_path / "absent"), UnreadableError, "No such file"),
        (str(tmp_path / "file"), UnreadableError, "a file"),
        ("http://host/x", UsageError, "s3://"),
        ("s3://", UsageError, "no bucket"),
    ):
        with pytest.raises(error, match=text):
            open_store(uri)


def test_a_directory_that_cannot_be_listed_is_not_empty(elsewhere: Path) -> None:
    (elsewhere / "tier" / "closed").mkdir(parents=True)
    (elsewhere / "tier" / "closed").chmod(0)
    with powerless(), pytest.raises(UnreadableError, match="closed"):
        list(open_store(str(elsewhere / "tier")).objects())


def test_a_store_has_no_call_that_writes() -> None:
    from klog.tier.object_store import ObjectStore

    for store in (DirectoryStore, ObjectStore):
        assert {name for name in vars(store) if not name.startswith("_")} == {"objects", "open", "read"}
