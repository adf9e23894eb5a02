"""The one compiled module: scan, CRC, decode, format.  See `_kernel.pyx`."""
