"""A broker's own cleaner on a log dir: ``cleaner.py LOG_DIR TOPIC``; prints records in and out, and CPU seconds.

The CPU seconds are those of the one thread that cleans; the JVM's compiler and collector threads are not counted.  Run
by klog's interpreter from the root of the checkout.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.commands.compact.oracle import CleanerOracle

# The settings of a broker, over the ones that the tests have for quick starts.
FLAGS = "-Xms1g -Xmx1g -XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC -XX:MaxGCPauseMillis=20"


def main(log_dir: str, topic: str) -> None:
    os.environ["_JAVA_OPTIONS"] = FLAGS
    now_ms = int(time.time() * 1000)
    with CleanerOracle() as oracle:
        rounds = oracle.clean(Path(log_dir), now_ms=now_ms, topic_settings={topic: {"cleanup.policy": "compact"}})
    assert not any(one.error for one in rounds), rounds
    read, written = (sum(getattr(one, f"messages_{what}") for one in rounds) for what in ("read", "written"))
    print(read, written, sum(one.cpu_ns for one in rounds) / 1e9)


if __name__ == "__main__":
    main(*sys.argv[1:])
