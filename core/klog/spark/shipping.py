"""Brings klog and its codecs to the executors: as an archive, as an environment, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from klog.base.errors import UsageError
from klog.data_dir.disk.disk_changes import Scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SITE = "klogsite"
"""The directory, in an executor's working directory, in which the archive is unpacked."""

ENVIRONMENT = "environment"
ARCHIVE, PREINSTALLED = "archive", "preinstalled"
_PACKED = (".tar.gz", ".tgz", ".zip")
_OURS = ("klog", "pyspark_klog")
_CODECS = ("lz4", "snappy", "cramjam", "zstandard", "isal")
_DECODERS = ("fastavro", "google.protobuf", "google._upb")


def write_archive(file: BinaryIO) -> None:
    """Write the installed klog, and its codecs, as a zip archive.

    It is no wheel and no importable zip: shared objects cannot be loaded out of one, and Spark has to unpack it.
    """
    from zipfile import ZIP_DEFLATED, ZipFile

    with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for root, name in _installed():
            archive.write(os.path.join(root, name), name)


def _installed() -> Iterator[tuple[str, str]]:
    """Yield each file of klog and of what decodes for it: the directory that has the package, and the path below it."""
    from importlib.util import find_spec

    for package in (*_OURS, *_CODECS, *_DECODERS):
        try:
            spec = find_spec(package)
        except ModuleNotFoundError:  # of the package around it
            continue
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            root = folder
            for _ in package.split("."):
                root = os.path.dirname(root)
            for path, folders, files in os.walk(folder):
                folders[:] = sorted(name for name in folders if name != "__pycache__")
                yield from ((root, os.path.relpath(os.path.join(path, name), root)) for name in sorted(files))


def shipping(ship: str, scratch: Scratch) -> tuple[dict[str, str], str | None]:
    """Return the settings that bring klog to executors, and the Python to run there (None: the default).

    *ship*: `archive` (klog packs itself), `preinstalled`, or the path of an environment with klog, made by venv-pack or
    conda-pack.  Raises UsageError for anything else.
    """
    if ship == PREINSTALLED:
        return {}, None
    if ship == ARCHIVE:
        with scratch.create("klog.zip") as file:
            write_archive(file)
        archive = os.path.join(scratch.path, "klog.zip")
        return {"spark.archives": f"{archive}#{SITE}", "spark.executorEnv.PYTHONPATH": SITE}, None
    if ship.endswith(_PACKED) and os.path.isfile(ship):
        packed = os.path.abspath(ship)
        return {"spark.archives": f"{packed}#{ENVIRONMENT}"}, f"./{ENVIRONMENT}/bin/python"
    known = f"{ARCHIVE}, {PREINSTALLED} or an environment packed by venv-pack ({', '.join(_PACKED)})"
    raise UsageError(f"--ship {ship}: expected {known}")


def ship_to(spark: SparkSession, scratch: Scratch) -> None:
    """Bring klog to the executors of an existing session, also over Spark Connect."""
    with scratch.create("klog.zip") as file:
        write_archive(file)
    spark.addArtifacts(f"{os.path.join(scratch.path, 'klog.zip')}#{SITE}", archive=True)
