"""Write what the one file contains, as a CycloneDX bill of materials: `sbom.py DOWNLOADS FILE`, to FILE.cdx.json.

Names, versions, licences and digests are those of inputs.txt.  What lies inside of an input has the version that its
source says: a new input brings its new parts.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tarfile
import zipfile
from typing import Any

BUILDS = ("ziglang", "cython")
"""Inputs that are no part of the file."""

LLVM = "Apache-2.0 WITH LLVM-exception"
INSIDE = {
    "musl": ("ziglang", "ziglang/lib/libc/musl/src/internal/version.h", r'VERSION "([\d.]+)"', "MIT"),
    "libc++": ("ziglang", "ziglang/lib/libcxx/include/__config", r"define _LIBCPP_VERSION (\d\d)(\d\d)(\d\d)", LLVM),
    "zstd": ("zstandard", "zstd/zstd.c", r"define ZSTD_VERSION_(?:MAJOR|MINOR|RELEASE) +(\d+)", "BSD-3-Clause"),
    "liblz4": ("lz4", "lz4libs/lz4.h", r"define LZ4_VERSION_(?:MAJOR|MINOR|RELEASE) +(\d+)", "BSD-2-Clause"),
    "xxhash": ("lz4", "lz4libs/xxhash.h", r"define XXH_VERSION_(?:MAJOR|MINOR|RELEASE) +(\d+)", "BSD-2-Clause"),
    "isa-l": ("isal", "isa-l/configure.ac", r"\[(\d[\d.]+)\],", "BSD-3-Clause"),
    "expat": ("cpython", "Modules/expat/expat.h", r"define XML_(?:MAJOR|MINOR|MICRO)_VERSION (\d+)", "MIT"),
    "libmpdec": ("cpython", "Modules/_decimal/libmpdec/mpdecimal.h", r'MPD_VERSION "([\d.]+)"', "BSD-2-Clause"),
    "mimalloc": ("cpython", "internal/mimalloc/mimalloc.h", r"define MI_MALLOC_VERSION (\d)(\d)(\d)", "MIT"),
}
"""Libraries: the input that each lies in, the file there that names its version, how, and its licence."""


def inputs() -> dict[str, list[str]]:
    """Return version, licence, place and digest of each input by its name."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "inputs.txt"), encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return {name: rest for name, *rest in rows}


def content(archive: str, path: str) -> str:
    """Return the text of the one file in an archive whose path ends so."""
    if archive.endswith(".whl"):
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(path).decode()
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.endswith("/" + path):
                file = tar.extractfile(member)
                assert file is not None
                return file.read().decode()
    raise SystemExit(f"{archive}: no {path}")


def version_in(text: str, pattern: str) -> str:
    """Return a version whose numbers stand in one group or in several, on one line or on three."""
    found = re.findall(pattern, text, re.MULTILINE)
    if not found:
        raise SystemExit(f"no version: {pattern}")
    numbers = found[0] if isinstance(found[0], tuple) else found[:3]
    return ".".join(number if "." in number else str(int(number)) for number in numbers)


def component(name: str, version: str, licence: str, **more: Any) -> dict[str, Any]:
    """Return one entry of the bill."""
    licences = [{"expression": licence}] if " " in licence else [{"license": {"id": licence}}]
    return {"type": "library", "bom-ref": name, "name": name, "version": version, "licenses": licences, **more}


def components(downloads: str) -> list[dict[str, Any]]:
    """Return all that is inside, by name."""
    made = []
    given = inputs()
    for name, (version, licence, place, digest) in given.items():
        if name not in BUILDS:
            kind = "pypi" if place.startswith("pypi:") else "generic"
            hashes = [{"alg": "SHA-256", "content": digest}]
            made.append(component(name, version, licence, purl=f"pkg:{kind}/{name}@{version}", hashes=hashes))
    for name, (source, path, pattern, licence) in INSIDE.items():
        archive = os.path.join(downloads, os.path.basename(given[source][2].partition(":")[2]))
        version = version_in(content(archive, path), pattern)
        made.append(component(name, version, licence, purl=f"pkg:generic/{name.replace('+', '%2B')}@{version}"))
    return sorted(made, key=lambda one: str(one["name"]))


def main() -> None:
    """Write the bill.  It has no time and no serial number, so that it is the same whenever it is made."""
    downloads, path = sys.argv[1:]
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    version = os.path.basename(path).split("-")[1]
    klog = {
        **component("klog", version, "Apache-2.0", hashes=[{"alg": "SHA-256", "content": digest}]),
        "type": "application",
    }
    inside = components(downloads)
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": klog},
        "components": inside,
        "dependencies": [{"ref": "klog", "dependsOn": [one["bom-ref"] for one in inside]}],
    }
    with open(f"{path}.cdx.json", "w", encoding="utf-8") as file:
        json.dump(bill, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
