"""The compiled parts of klog, one for each core/klog/kernel/_*.pyx; all else about the package is in pyproject.toml."""

from __future__ import annotations

import os
import re
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = Path("core/klog/kernel")
MEMORYVIEWS = "klog.kernel._memoryviews"
"""Holds Cython's own code for memoryviews, which each part would have otherwise."""


class BuildKernel(build_ext):
    """Translate and compile the parts side by side, each only when a file that it reads has changed."""

    def build_extensions(self) -> None:
        """Do so."""
        self.parallel = os.cpu_count()
        parts = cythonize(
            self.extensions,
            nthreads=self.parallel,
            force=self.force,
            include_path=["core"],
            quiet=True,
            shared_utility_qualified_name=MEMORYVIEWS,
        )
        for extension, part in zip(self.extensions, parts, strict=True):
            extension.sources, extension.depends = part.sources, headers(part.depends)
        super().build_extensions()


def headers(named: list[str]) -> list[str]:
    """Return the C headers *named*, and those that they include."""
    found: set[str] = set()
    left = [*named, str(KERNEL / "imports.h")]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            included = re.findall(r'#include "(.+)"', Path(path).read_text(encoding="utf-8"))
            left += [str(KERNEL / name) for name in included]
    return sorted(found)


def part(name: str, source: Path) -> Extension:
    """Return an extension, for every Python from 3.11 on."""
    return Extension(
        name,
        [str(source)],
        include_dirs=[str(KERNEL)],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=True,
        extra_compile_args=["-include", "imports.h", "-O3", "-g0", "-fno-plt", "-fvisibility=hidden"],
    )


setup(
    cmdclass={"build_ext": BuildKernel},
    ext_modules=[
        *(part(f"klog.kernel.{path.stem}", path) for path in sorted(KERNEL.glob("_*.pyx"))),
        part(MEMORYVIEWS, KERNEL / "_memoryviews.c"),
    ],
)
