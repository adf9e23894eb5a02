"""Tests of the compiled kernel: bytes in memory, without files."""
