"""The table of what can be found wrong, each with log dirs that show it."""

from __future__ import annotations

from typing import Final

from tests.partition.verify import faulty as f
from tests.partition.verify import strange
from tests.partition.verify.faulty import Maker
from tests.partition.verify.test_matrix import PARTITION, TEXTS, garbage

EPOCHS = f"{PARTITION}/leader-epoch-checkpoint"

LOG: Final[dict[str, dict[str, Maker]]] = {
    "torn-tail": {
        "last segment": f.changed(f.PLAIN, lambda log: log[:-10]),
        "a few bytes": f.one_log(strange.rows(0), strange.rows(10)[:5]),
        "first batch": f.one_log(strange.rows(0)[:50]),
        "intact segments behind": f.changed(f"{PARTITION}/{110:020}.log", lambda log: log[:-10]),
        "unclean": f.changed(f.PLAIN, lambda log: log[:-10], clean=False),
        "by itself": f.lone,
        "crash": f.copied("crash/torn-in-batch"),
        "future": f.aside(f.changed(f.PLAIN, lambda log: log[:-10]), "future"),
        "delete": f.aside(f.changed(f.PLAIN, lambda log: log[:-10]), "delete"),
        "stray": f.aside(f.changed(f.PLAIN, lambda log: log[:-10]), "stray"),
        "metadata log": f.metadata_torn,
    },
    "zero-tail": {
        "last segment": f.changed(f.PLAIN, lambda log: log + bytes(500)),
        "preallocated": f.changed(f.PLAIN, lambda log: log + bytes(1 << 20), clean=False),
        "nothing else": f.one_log(bytes(100)),
    },
    "zeroed": {
        "end of a batch": f.one_log(strange.rows(0), strange.rows(10, 60)[:-700] + bytes(700)),
        "batches, with a witness": f.changed(f.PLAIN, lambda log: log[:-1000] + bytes(1000)),
        "all of it": f.changed(f.PLAIN, lambda log: bytes(len(log))),
        "segments behind": f.changed(f"{PARTITION}/{110:020}.log", lambda log: log[:-600] + bytes(600)),
        "to the end of a closed segment": f.logs_of(_0=strange.rows(0) + bytes(600), _20=strange.rows(20)),
        "the first segment": f.logs_of(_0=bytes(600), _20=strange.rows(20)),
    },
    "garbage-tail": {
        "last segment": f.changed(f.PLAIN, lambda log: log + b"\x55" * 99),
        "nothing else": f.one_log(b"\x55" * 99),
        "segments behind": f.changed(f"{PARTITION}/{110:020}.log", lambda log: log + b"\x55" * 99),
        "an older batch": f.one_log(strange.rows(10), strange.rows(0)[:70]),
        "metadata, first segment": f.aside(f.changed(f.PLAIN, lambda log: log + b"\x55" * 99), "stray"),
    },
    "bad-crc": {
        **f.everywhere("payload"),
        **f.everywhere("stored crc"),
        **{f"message, {name}": make for name, make in f.between(strange.wrong_wrapper).items() if name == "alone"},
        "crash": f.copied("crash/flip-middle"),
        "future": f.aside(f.at_batch(f.CHANGES["payload"][0], "middle", 0.5), "future"),
        "stray": f.aside(f.at_batch(f.CHANGES["payload"][0], "middle", 0.5), "stray"),
        "delete": f.aside(f.at_batch(f.CHANGES["payload"][0], "middle", 0.5), "delete"),
        "metadata log": f.metadata_flipped,
    },
    "bad-length": {**f.everywhere("size 3"), **f.everywhere("size below zero")},
    "more-damage": {"every other batch": f.many_damages},
    "bad-magic": f.everywhere("magic 9"),
    "short-header": f.everywhere("size 20"),
    "bad-compression": f.between(lambda base: strange.not_compressed(base, 1)),
    "bad-record": f.between(strange.wrong_record),
    "bad-counts": f.between(strange.wrong_count),
    "unknown-codec": f.between(lambda base: strange.not_compressed(base, 6)),
    "odd-offset": {
        "between sound ones": f.one_log(
            strange.rows(0), strange.with_offset(strange.rows(10), 1 << 20), strange.rows(20), strange.rows(30)
        ),
        "where some are missing": f.one_log(
            strange.rows(0), strange.with_offset(strange.rows(10), 1 << 20), strange.rows(23), strange.rows(33)
        ),
        "compacted": f.in_compacted(
            strange.rows(0), strange.with_offset(strange.rows(12), 1 << 20), strange.rows(25), strange.rows(40)
        ),
        **f.everywhere("base offset"),
    },
    "odd-epoch": {
        "between sound ones": f.one_log(strange.rows(0), strange.with_epoch(strange.rows(10), 9), strange.rows(20)),
        "between others": f.one_log(
            strange.rows(0), strange.with_epoch(strange.rows(10), 9), strange.rows(20, leader_epoch=2)
        ),
        "lower": f.one_log(
            strange.rows(0, leader_epoch=3), strange.rows(10, leader_epoch=1), strange.rows(20, leader_epoch=3)
        ),
        **f.everywhere("epoch"),
    },
    "epochs-fall": {
        "the last one": f.one_log(
            strange.rows(0, leader_epoch=3), strange.rows(10, leader_epoch=3), strange.rows(20, leader_epoch=1)
        ),
        "several": f.one_log(*(strange.rows(10 * i, leader_epoch=epoch) for i, epoch in enumerate((3, 3, 1, 1, 2)))),
    },
    "offsets-backwards": {
        "the same batch twice": f.one_log(strange.rows(0), strange.rows(10), strange.rows(10), strange.rows(20)),
        "others for the same offsets": f.one_log(
            strange.rows(0), strange.rows(10), strange.rows(5, 12), strange.rows(30)
        ),
        "back to the start": f.one_log(strange.rows(0), strange.rows(10), strange.rows(0, 3), strange.rows(3, 4)),
        "a new leader": f.one_log(
            strange.rows(0), strange.rows(10), strange.rows(10, leader_epoch=1), strange.rows(20, leader_epoch=1)
        ),
        "an older batch last": f.one_log(strange.rows(0), strange.rows(10), strange.rows(3, 2)),
    },
    "offset-overflow": {
        "jump": f.one_log(strange.rows(0, 5), strange.rows(2**31 + 10, 5)),
        "jump, segments behind": f.logs_of(
            _0=strange.rows(0, 5) + strange.rows(2**31 + 10, 5), _2147483663=strange.rows(2**31 + 15)
        ),
        "below": f.logs_of(_0=strange.rows(0), _10=strange.rows(5, 3) + strange.rows(10)),
    },
    "segments-overlap": {
        "other batches": f.logs_of(_0=strange.rows(0) + strange.rows(10), _15=strange.rows(15)),
        "the same batch": f.logs_of(_0=strange.rows(0) + strange.rows(10), _10=strange.rows(10) + strange.rows(20)),
    },
    "offset-gap": {
        "between batches": f.one_log(strange.rows(0), strange.rows(15)),
        "a segment less": f.named("a segment less"),
    },
    "offsets-missing": {"metadata says so": f.missing},
    "oversized-log": {"zeros": f.oversized},
}

INDEXES: Final[dict[str, dict[str, Maker]]] = {
    "index-missing": f.index("missing"),
    "index-ragged": f.index("ragged"),
    "index-order": f.index("garbage"),
    "index-hole": f.index("hole", ("first", "middle")),
    "index-zero-tail": f.index("zero tail"),
    "index-disagrees": f.index("shifted"),
    "index-beyond-log": {"a longer log's": f.changed(f"{PARTITION}/{110:020}.index", lambda data: f.beyond(data))},
    "index-sparse": {"large log": f.sparse},
    "index-inexact": {
        "another offset": f.changed(f"{PARTITION}/{110:020}.index", f.flipped(3)),
        "another offset of a time": f.changed(f"{PARTITION}/{110:020}.timeindex", f.flipped(11)),
    },
    "time-index-missing": f.index("time missing"),
    "time-index-ragged": f.index("time ragged"),
    "time-index-order": f.index("time reversed"),
    "time-index-hole": f.index("time hole"),
    "time-index-zero-tail": f.index("time zero tail"),
    "time-index-disagrees": {
        "too small": f.changed(f"{PARTITION}/{110:020}.timeindex", lambda data: f.earlier(data)),
    },
    "time-index-ahead": f.index("time shifted", in_broken=False),
    "time-index-short": f.index("time empty"),
    "time-index-beyond-log": {
        "a longer log's": f.changed(f"{PARTITION}/{110:020}.timeindex", lambda data: f.time_beyond(data)),
    },
    "txn-index-ragged": {"bytes more": f.txn_index(lambda data: data + b"\0\0\1")},
    "txn-index-version": {
        "another": f.txn_index(lambda data: b"\0\7" + data[2:]),
        "beside damage": f.with_flip(f.txn_index(lambda data: b"\0\7" + data[2:]), f"tx-0/{138:020}.log"),
    },
    "txn-index-order": {"garbage": f.txn_index(lambda data: b"\0\0" + bytes(garbage(data))[2:])},
    "txn-index-disagrees": {
        "gone": f.txn_index(lambda _: None),
        "empty": f.txn_index(lambda _: b""),
        "one less": f.txn_index(lambda data: data[34:]),
        "another producer": f.txn_index(lambda data: data[:9] + b"\x77" + data[10:]),
        "beside damage": f.with_flip(f.txn_index(lambda _: b""), f"tx-0/{138:020}.log"),
    },
}

STATE: Final[dict[str, dict[str, Maker]]] = {
    "snapshot-corrupt": {
        "the last": f.changed(f"{PARTITION}/{800:020}.snapshot", lambda data: data[:-1]),
        "in the middle": f.changed(f"{PARTITION}/{210:020}.snapshot", f.flipped(5)),
        "at no segment's base": f.changed(f"{PARTITION}/{700:020}.snapshot", f.flipped(5)),
        "all": f.snapshot_of(lambda folder: [path.write_bytes(b"x") for path in folder.glob("*.snapshot")]),
        "beside damage": f.with_flip(
            f.changed(f"{PARTITION}/{750:020}.snapshot", f.flipped(5)), f"{PARTITION}/{375:020}.log"
        ),
    },
    "snapshot-disagrees": {
        "of a later offset": f.snapshot_of(lambda folder: f.as_snapshot(folder, 800, 210)),
        "of an earlier offset": f.snapshot_of(lambda folder: f.as_snapshot(folder, 210, 750)),
        "another sequence": f.snapshot_of(f.other_sequence),
        "transactions": f.other_transaction,
    },
    "snapshots-missing": {"all": f.named("no snapshots")},
    "hanging-transaction": {"no marker": f.one_log(strange.txn(0), strange.late(3, 3600_000))},
    "sequence-gap": {
        "some left out": f.one_log(strange.txn(0, transactional=False), strange.txn(3, transactional=False, first=9))
    },
    "txn-conflict": {
        "a batch outside": f.one_log(strange.txn(0), strange.txn(3, transactional=False, first=3), strange.ends(6)),
        "behind intact segments": f.logs_of(
            _0=strange.rows(0),
            _10=strange.txn(10) + strange.txn(13, transactional=False, first=3) + strange.ends(16),
            _17=strange.rows(17),
        ),
        "beside damage": f.one_log(
            strange.txn(0),
            strange.txn(3, transactional=False, first=3),
            strange.broken(strange.rows(6)),
            strange.rows(16),
        ),
    },
    "bad-marker": {
        "short value": f.one_log(strange.txn(0), strange.bad_marker(3), strange.rows(4)),
        "last": f.one_log(strange.txn(0), strange.bad_marker(3)),
        "beside damage": f.one_log(
            strange.txn(0), strange.bad_marker(3), strange.broken(strange.rows(4)), strange.rows(14)
        ),
    },
    "epochs-missing": {"gone": f.named("no epochs")},
    "epochs-malformed": {
        text: f.changed(EPOCHS, lambda _, text=text: text.encode())  # type: ignore[misc]
        for text in ("1\n0\n", "0\n2\n0 0\n", "0\n1\n-1 0\n", "x")
    },
    "epochs-disagree": {
        "of others": f.named("epochs of others"),
        "beyond": f.named("epochs beyond"),
        "do not ascend": f.changed(EPOCHS, lambda _: b"0\n3\n0 0\n2 50\n1 60\n"),
        "beside damage": f.with_flip(f.named("epochs of others"), f"{PARTITION}/{375:020}.log"),
    },
}

NAMES: Final[dict[str, dict[str, Maker]]] = {
    "foreign-log-name": {name: f.named(name) for name in ("a saved log", "a saved index", "a saved snapshot")},
    "duplicate-segment": {"a segment twice": f.named("a segment twice")},
    "odd-name": {"a short one": f.short_name, "an odd number": f.odd_number},
    "orphan-index": {"no log": f.orphan},
    "leftover": {
        **{name: f.leftover(name) for name in ("log.deleted", "log.cleaned", "index.swap", "snapshot.deleted")},
        "a swap": f.swapped,
        "of epochs": lambda path: (f.of(PARTITION)(path), (path / f"{EPOCHS}.tmp").write_bytes(b"")),
        "of the log dir": lambda path: (f.of(PARTITION)(path), (path / f"{f.LOG_STARTS}.tmp").write_bytes(b"")),
    },
    "metadata-missing": {"gone": f.named("no metadata")},
    "metadata-malformed": {"empty": f.named("empty metadata")},
    "partition-empty": {"no segment": f.logs_of()},
    "foreign-directory": {name: f.named(name) for name in ("a foreign directory", "a backup directory", "no number")},
    "duplicate-partition": {"twice": f.named("a partition twice")},
    "stray-directory": {state: f.aside(f.of(PARTITION), state) for state in ("delete", "stray", "future")},
}

ROOT: Final[dict[str, dict[str, Maker]]] = {
    "checkpoint-malformed": {
        f"{name}, {text}": f.with_bytes(name, content)
        for name in (f.RECOVERY_POINTS, f.HIGH_WATERMARKS, f.LOG_STARTS, f.CLEANER_OFFSETS)
        for text, content in TEXTS.items()
    },
    "meta-properties-missing": {"gone": f.named("no meta.properties")},
    "meta-properties-malformed": {"garbage": f.named("a broken meta.properties")},
    "follow-file-malformed": {"garbage": f.named("a broken klog-follow.json")},
    "recovery-point-beyond-end": {
        "beyond": f.with_text(PARTITION, f.RECOVERY_POINTS, f.entry("idempotent", 0, 900)),
        "future": f.aside(f.with_text(PARTITION, f.RECOVERY_POINTS, f.entry("idempotent", 0, 900)), "future"),
    },
    "high-watermark-beyond-end": {
        "beyond": f.with_text(PARTITION, f.HIGH_WATERMARKS, f.entry("idempotent", 0, 900)),
        "beside damage": f.with_flip(
            f.with_text(PARTITION, f.HIGH_WATERMARKS, f.entry("idempotent", 0, 900)), f"{PARTITION}/{375:020}.log"
        ),
    },
    "high-watermark-below-start": {"below": f.below_start},
    "log-start-beyond-end": {
        "beyond": f.with_text(PARTITION, f.LOG_STARTS, f.entry("idempotent", 0, 900)),
        "far beyond": f.with_text(PARTITION, f.LOG_STARTS, f.entry("idempotent", 0, 2**62)),
    },
    "log-start-raised": {"above the epochs": f.above_epochs},
    "cleaner-offset-outside": {
        "beyond": f.with_text(PARTITION, f.CLEANER_OFFSETS, f.entry("idempotent", 0, 900)),
    },
}

FAULTS: Final[dict[str, dict[str, Maker]]] = {**LOG, **INDEXES, **STATE, **NAMES, **ROOT}
"""For each id makers of log dirs that show it, by their special features."""


UNMADE: Final = {
    "unfinished-append": "takes a broker that is writing; nothing is to be done about it",
    "vanished": "takes a broker that deletes the log while it is looked at; nothing is to be done about it",
    "unreadable": "takes a disk that refuses to read; no command mends that (see tests/support/bad_sectors.py)",
}
"""The findings that are not made here, and why."""
