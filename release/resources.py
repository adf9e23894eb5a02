"""The module `pkgutil` of the one file: the files beside klog's modules, from memory."""

from klog_resources import FILES  # type: ignore[import-not-found]  # freeze.py makes it


def get_data(package: str, resource: str) -> bytes | None:
    """Return what a file beside a package's modules contains, or None."""
    found: bytes | None = FILES.get((package, resource))
    return found
