"""The module that names protobuf's implementation in the one file: the compiled one, whatever the environment says."""

from google._upb import _message as _c_module  # noqa: F401  # protobuf's other modules take it from here


def Type() -> str:  # noqa: N802  # protobuf's name
    """Return the name of the implementation."""
    return "upb"
