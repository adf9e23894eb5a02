"""The Spark session: an existing one, or one that klog starts, silences and stops.

with session("local[*]") as ours:
    ours.spark.read.format("kafka-log").load("/data/broker-1")
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from klog.base.closing import Closing
from klog.base.errors import SparkError, UnsupportedError, UsageError
from klog.data_dir.disk.disk_changes import Scratch
from klog.formats.checkpoint import Malformed
from klog.formats.properties import read_properties
from klog.spark.java import Gateway, find_java, java_home
from klog.spark.shipping import ARCHIVE, ship_to, shipping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


INSTALL = "pip install 'klog[spark]'"
_TRIES = 3
_LOCAL = re.compile(r"local(\[(?P<cores>\*|\d+)\])?")
_QUIET = {
    "spark.app.name": "klog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
}
_JVM = "spark.driver.extraJavaOptions"
_HERE = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Arrow counts references and checks bounds for each value of each row; the data was written by Arrow as well.
    _JVM: "-XX:+UseParallelGC -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false",
}
_LISTS = {"spark.archives": ",", "spark.executorEnv.PYTHONPATH": ":"}
_MEMORY = "ARROW_DEFAULT_MEMORY_POOL", "system"
"""Arrow's own allocator keeps 40 MB more of a worker's freed memory, and is no faster for it."""
_BRIEF = {_JVM: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
_OPEN: set[Session] = set()


class Session(Closing):
    """A session in use.  `spark` is Spark's own; `close` stops a session that klog built, and leaves any other."""

    def __init__(self, spark: SparkSession, gateway: Gateway | None = None, scratch: Scratch | None = None) -> None:
        self.spark = spark
        self._gateway = gateway
        self._scratch = scratch
        if scratch is not None:
            _OPEN.add(self)

    @property
    def is_ours(self) -> bool:
        """Whether klog built it."""
        return self in _OPEN

    def close(self) -> None:
        """Stop it and its JVM, and remove its files."""
        if self not in _OPEN:
            return
        _OPEN.discard(self)
        try:
            self.spark.stop()
        finally:
            if self._gateway is not None:
                _detach(self._gateway)
            self.abandon()

    def abandon(self) -> None:
        """Remove its files: the process is about to end, and the JVM ends with it."""
        if self._scratch is not None:
            self._scratch.remove()


def abandon_all() -> None:
    """Remove the files of all sessions that klog built."""
    for one in _OPEN:
        one.abandon()


def session(
    master: str | None = None, conf: Mapping[str, str] | None = None, ship: str = ARCHIVE, brief: bool = False
) -> Session:
    """Return the active session, or build one.

    *master*: Spark's master; None: that of the environment's configuration, else this machine.  *conf*: further
    settings.  *ship*: how executors get klog (`klog.spark.shipping.shipping`).  *brief*: for one command, whose
    JVM computes next to nothing: its second compiler would cost more than it gains.

    Raises UnsupportedError if pyspark or Java is missing, UsageError for an unknown *ship*, SparkError if Spark
    does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UnsupportedError(f"this needs PySpark: {INSTALL}") from error
    # Notebooks have one, and so has whatever was started by spark-submit.
    active = SparkSession.getActiveSession()
    if active is not None:
        return Session(active)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return Session(SparkSession.builder.getOrCreate())
    remote = master if (master or "").startswith("sc://") else os.environ.get("SPARK_REMOTE") if not master else None
    return _connect(remote, conf or {}, ship) if remote else _build(master, conf or {}, ship, brief)


def _connect(remote: str, conf: Mapping[str, str], ship: str) -> Session:
    """Return a session of Spark Connect."""
    with ExitStack() as undo:
        scratch = Scratch()
        undo.callback(scratch.remove)
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.remote(remote)
        for name, value in conf.items():
            builder = builder.config(name, value)
        try:
            spark = builder.getOrCreate()
            if ship == ARCHIVE:
                ship_to(spark, scratch)
        except ImportError as error:
            raise UnsupportedError("Spark Connect needs more: pip install 'pyspark[connect]'") from error
        except (PySparkException, RuntimeError) as error:
            raise SparkError(f"{remote}: {str(error).splitlines()[0]}") from error
        undo.pop_all()
    return Session(spark, None, scratch)


def _build(master: str | None, conf: Mapping[str, str], ship: str, brief: bool) -> Session:
    """Start a JVM and return a session in it."""
    java = find_java()
    with ExitStack() as undo:
        scratch = Scratch()
        undo.callback(scratch.remove)
        home = _home(scratch)
        settings, python = _settings(master, conf, ship, brief, home, scratch)
        gateway = Gateway(home, settings, scratch, _environment(java, home, settings["spark.master"]))
        undo.callback(_detach, gateway)
        spark = _attach(gateway, settings, python)
        undo.pop_all()
    return Session(spark, gateway, scratch)


def _home(scratch: Scratch) -> str:
    """Return the Spark to start: that of SPARK_HOME, else pip's.

    Pip's is passed on with an empty `python/lib/pyspark.zip`, from which each worker would otherwise compile again the
    installed modules, compiled, beside it; and Spark's own files in its home are kept out of site-packages.  Without
    these names Spark does not look for data sources in Python.
    """
    given = os.environ.get("SPARK_HOME")
    if given:
        return given
    import pyspark

    installed = os.path.dirname(pyspark.__file__)
    home = scratch.directory("home")
    for name in ("bin", "jars", "sbin"):
        if os.path.isdir(os.path.join(installed, name)):
            scratch.link(os.path.join(installed, name), "home", name)
    archives = os.path.join(installed, "python", "lib")
    for name in os.listdir(archives) if os.path.isdir(archives) else ():
        scratch.directory("home", "python", "lib", name)
    return home


def _settings(
    master: str | None, conf: Mapping[str, str], ship: str, brief: bool, home: str, scratch: Scratch
) -> tuple[dict[str, str], str]:
    """Return the settings to start with, and the Python of the workers.

    Given settings precede the environment's configuration, which precedes klog's defaults.
    """
    there = environment_conf(home)
    chosen = {**there, **conf}
    at = master or chosen.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    is_local = at.startswith("local") and not at.startswith("local-cluster")
    python = chosen.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    defaults = _QUIET | {"spark.sql.warehouse.dir": os.path.join(scratch.path, "warehouse")}
    if is_local:
        defaults |= _HERE | {"spark.local.dir": scratch.path}
    else:
        shipped, packed = shipping(ship, scratch)
        python = packed or python
        defaults["spark.executorEnv." + _MEMORY[0]] = _MEMORY[1]
        # Theirs may be lists as well, and then both are meant.
        conf = {
            **conf,
            **{name: _LISTS[name].join([ours, *filter(None, [chosen.get(name)])]) for name, ours in shipped.items()},
        }
    defaults |= _BRIEF if brief and not there else {}
    settings = {name: value for name, value in defaults.items() if name not in there} | dict(conf)
    return {**settings, "spark.master": _with_retries(at)}, python or sys.executable


def environment_conf(home: str) -> dict[str, str]:
    """Return the settings of `spark-defaults.conf`, in SPARK_CONF_DIR or below *home*; empty if there is none.

    Raises UsageError if it cannot be read.  Spark reads it too: klog only avoids overriding it.
    """
    path = os.path.join(os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"), "spark-defaults.conf")
    try:
        with open(path, "rb") as file:
            found = read_properties(file.read())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; SPARK_CONF_DIR names another") from error
    if isinstance(found, Malformed):
        raise UsageError(f"{path}: {found}")
    return {name: value.strip() for name, value in found.items()}


def _with_retries(master: str) -> str:
    """Return *master* with several attempts per task: on one machine there is only one by default."""
    local = _LOCAL.fullmatch(master)
    return f"local[{local['cores'] or 1},{_TRIES}]" if local else master


def _environment(java: str, home: str, master: str) -> dict[str, str]:
    """Return the environment of the JVM and of the workers on this machine, which find klog where this process does."""
    import klog

    found = [os.path.dirname(os.path.dirname(klog.__file__)), os.environ.get("PYTHONPATH", "")]
    variables = {**os.environ, "SPARK_HOME": home, "JAVA_HOME": java_home(java)}
    variables["PYTHONPATH"] = os.pathsep.join(path for path in found if path)
    # The driver looks for data sources with this Python; with one that lacks klog it silently finds none.
    variables["PYSPARK_DRIVER_PYTHON"] = sys.executable
    variables.setdefault(*_MEMORY)
    if master.startswith("local"):
        variables.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def _attach(gateway: Gateway, settings: Mapping[str, str], python: str) -> SparkSession:
    """Return a session in the JVM of *gateway*.  Raises SparkError."""
    from pyspark.sql import SparkSession

    variables = {
        "PYSPARK_GATEWAY_PORT": str(gateway.port),
        "PYSPARK_GATEWAY_SECRET": gateway.secret,
        "PYSPARK_PYTHON": python,
    }
    builder = SparkSession.builder.config(map=dict(settings))
    before = {name: value for name in variables if (value := os.environ.get(name)) is not None}
    interrupt, disabled = signal.getsignal(signal.SIGINT), logging.root.manager.disable
    os.environ.update(variables)
    logging.disable(logging.CRITICAL)  # py4j logs each exception that it also raises
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise SparkError(f"{settings['spark.master']}: Spark did not start: {gateway.last_words()}") from error
    finally:
        logging.disable(disabled)
        for name in variables:
            del os.environ[name]
        os.environ.update(before)
        if threading.current_thread() is threading.main_thread():
            # PySpark's own handler talks to the JVM in the middle of another call.
            signal.signal(signal.SIGINT, interrupt)


def _detach(gateway: Gateway) -> None:
    """Make PySpark forget a JVM, and end it."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        SparkContext._gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.stop()
