"""`klog verify` of a log that is not in the page cache, and of one that is: dropping what it reads, and keeping it."""

from __future__ import annotations

from collections.abc import Iterator

from bench.jobs import Bench
from bench.measure import Command
from bench.table import Row


def cold(bench: Bench) -> Iterator[Row]:
    """A log of 1 GiB; the clock counts, the best run of each."""
    log = bench.log("plain")
    commands = {"cat": Command(["cat", log], "null", cold=(log,))}
    for mode in ("keep", "drop"):
        words = [*bench.klog, "verify", log, "--cache", mode]
        commands[mode] = Command(words, "null", cold=(log,))
        commands[f"{mode}, cached"] = Command(words, "null")
    race = bench.race(log, commands)
    for name, suffix in (("verify, not cached", ""), ("verify, cached", ", cached")):
        keep_s, drop_s = (race.best_wall_s(f"{mode}{suffix}") for mode in ("keep", "drop"))
        told = f"wall time, best of {race.runs('drop')}: --cache keep {keep_s:.3f} s, drop {drop_s:.3f} s"
        yield Row(name, told, keep_s / drop_s, at_least=0.95)
    told = f"cat {race.best_wall_s('cat'):.3f} s, klog {race.best_wall_s('drop'):.3f} s"
    yield Row("verify, not cached", told, race.best_wall_s("cat") / race.best_wall_s("drop"))
