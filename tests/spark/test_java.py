"""The choice of a Java, and the message if none fits.  Needs no Java."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.errors import SparkError, UnsupportedError
from klog.data_dir.disk.disk_changes import Scratch
from klog.spark.java import Gateway, find_java, java_home, java_version

Jre = Callable[[str, str], Path]


@pytest.fixture
def jre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jre:
    """Return a function that makes what looks like a JRE; there is no other."""
    for name in ("KLOG_JAVA_HOME", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))

    def make(name: str, version: str) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text("#!/bin/sh\n")
        (home / "bin" / "java").chmod(0o755)
        if version:
            (home / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{version}"\n')
        return home

    return make


def test_klogs_own_variable_goes_first_then_javas_then_the_path(jre: Jre, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = {name: jre(name, "17.0.15") for name in ("ours", "theirs", "path")}
    monkeypatch.setenv("PATH", str(homes["path"] / "bin"))
    assert find_java() == str(homes["path"] / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(homes["theirs"]))
    assert find_java() == str(homes["theirs"] / "bin" / "java")
    monkeypatch.setenv("KLOG_JAVA_HOME", str(homes["ours"]))
    assert find_java() == str(homes["ours"] / "bin" / "java")
    assert java_home(find_java()) == str(homes["ours"])


def test_without_java_it_is_said_what_to_install(jre: Jre) -> None:
    with pytest.raises(UnsupportedError, match=r"needs Java, .*; install a JRE of 17 or newer \(Debian: openjdk-17"):
        find_java()


def test_a_variable_that_leads_nowhere_is_named(jre: Jre, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """To continue with another Java than the requested one would be a surprise."""
    monkeypatch.setenv("PATH", str(jre("path", "21") / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(UnsupportedError, match=f"JAVA_HOME={tmp_path}/gone: there is no bin/java in it"):
        find_java()


@pytest.mark.parametrize(
    ("version", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_292", 8), ("", None), ("x", None)]
)
def test_the_version_is_read_beside_it(jre: Jre, version: str, number: int | None) -> None:
    """The JVM itself would take half a second for the message, and Spark's own words about an old one are a stack
    trace."""
    java = jre("home", version) / "bin" / "java"
    assert java_version(str(java)) == number


def test_an_old_one_is_refused(jre: Jre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(jre("old", "11.0.2")))
    with pytest.raises(UnsupportedError, match=r"old/bin/java: Java 11 is too old for Spark; install"):
        find_java()


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (
            "INFO warming up\njava.lang.a.BadError: no such option\nat x.y(z)\nCaused by: a.OtherException: x",
            "no such option",
        ),
        ('Exception in thread "main" java.lang.OutOfMemoryError: Java heap space', "Java heap space"),
        ("hm\nError: Could not find or load main class\nhm", "Error: Could not find or load main class"),
        ("nothing special", "nothing special"),
        ("", "it printed nothing"),
    ],
)
def test_a_jvm_that_does_not_start_is_quoted(tmp_path: Path, printed: str, said: str) -> None:
    """Its output would otherwise be in a file that is deleted by then."""
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{printed}\nEND\nexit 3\n")
    submit.chmod(0o755)
    scratch = Scratch()
    try:
        with pytest.raises(SparkError) as raised:
            Gateway(str(tmp_path), {}, scratch, {"PATH": "/bin:/usr/bin"})
        assert str(raised.value) == f"Spark's JVM ended with code 3: {said}"
    finally:
        scratch.remove()
