"""A real Apicurio Registry, fetched by Maven the first time: its schemas are in a topic of a broker."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.brokers import jars, kafka

VERSION = "3.0.9"
_PACKAGE = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_PATIENCE_S = 180


def install() -> Path:
    """Return the folder with the registry."""
    return jars.filled(jars.CACHE / f"apicurio-{VERSION}", _fetch)


def _fetch(folder: Path) -> None:
    jars.fetch(folder, _PACKAGE)
    (packed,) = (folder / "libs").glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder / "libs", filter="data")
    packed.unlink()


class Apicurio:
    """A running registry at *port*, which clients of Confluent's registry talk to."""

    def __init__(self, port: int) -> None:
        self._base = f"http://localhost:{port}/apis/ccompat/v7"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer.  Raises HTTPError."""
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._base}{path}", content, {"Content-Type": "application/vnd.schemaregistry.v1+json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def register(self, subject: str, text: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a version; return its id."""
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        found: int = self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)["id"]
        return found

    def versions(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Return all versions that it knows, as it has them."""
        found = {}
        for subject in self.ask("GET", "/subjects"):
            place = f"/subjects/{quote(subject, safe='')}/versions"
            for version in self.ask("GET", place):
                found[subject, version] = self.ask("GET", f"{place}/{version}")
        return found


@contextmanager
def running(broker: kafka.Cluster, port: int, topic: str = "kafkasql-journal") -> Iterator[Apicurio]:
    """Start a registry whose journal is a topic of *broker*; wait until it answers."""
    folder, found = install(), Apicurio(port)
    settings = {
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": broker.bootstrap,
        "APICURIO_KAFKASQL_TOPIC": topic,
        "QUARKUS_HTTP_PORT": str(port),
    }
    brief = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # as for brokers: it runs for seconds
    command = ["java", "-Xmx512m", *brief, "-jar", f"apicurio-registry-app-{VERSION}-runner.jar"]
    with open(broker.folder / "apicurio.log", "ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=os.environ | settings, stdout=log, stderr=log)
    try:
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end and process.poll() is None:
            try:
                found.ask("GET", "/subjects")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.5)
        else:
            raise AssertionError((broker.folder / "apicurio.log").read_text(errors="replace")[-3000:])
        yield found
    finally:
        process.terminate()
        process.wait(60)
