"""The file system's own time: ``write.py FILE BYTES``; writes so many, a MiB at a time, and prints CPU seconds."""

import os
import sys
import time

MIB = 1 << 20


def main(path: str, size: int) -> None:
    piece = os.urandom(MIB)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    began = time.process_time()
    for _ in range(size // MIB):
        os.write(file, piece)
    os.write(file, piece[: size % MIB])
    os.close(file)
    print(time.process_time() - began)


main(sys.argv[1], int(sys.argv[2]))
