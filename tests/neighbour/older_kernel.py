"""Runs a command as an older kernel would: `python older_kernel.py CALL… -- COMMAND…`.

`dontcache`: preadv2 with RWF_DONTCACHE is answered by EOPNOTSUPP, as before Linux 6.14 and on file systems without it.
`cachestat`: ENOSYS, as before Linux 6.5.  A seccomp filter gives these answers: strace does not know new calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2
_LOAD, _IF_EQUAL, _IF_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER_AT, _FLAGS_AT = 0, 16 + 8 * 5
"""Bytes of struct seccomp_data before the number of the call, and before its sixth argument (little endian)."""
_RWF_DONTCACHE = 0x80
_PREADV2 = {"x86_64": 327, "aarch64": 286}[platform.machine()]
_CACHESTAT = 451

Instruction = tuple[int, int, int, int]
"""Code, instructions to skip if true, instructions to skip if not, value."""
_FILTERS: dict[str, list[Instruction]] = {
    "dontcache": [
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_EQUAL, 0, 3, _PREADV2),
        (_LOAD, 0, 0, _FLAGS_AT),
        (_IF_BITS, 0, 1, _RWF_DONTCACHE),
        (_RETURN, 0, 0, _ERROR | errno.EOPNOTSUPP),
    ],
    "cachestat": [
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_EQUAL, 0, 1, _CACHESTAT),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ],
}


def lack(calls: list[str]) -> None:
    """Take the calls from this process, and from all that it starts."""
    program = [*(each for call in calls for each in _FILTERS[call]), (_RETURN, 0, 0, _ALLOW)]
    content = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    header = struct.pack("@HP", len(program), ctypes.addressof(content))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _FILTER, header, 0, 0)):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "no seccomp filter: " + os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    end = sys.argv.index("--")
    lack(sys.argv[1:end])
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])
