"""Requests of a hostile client: those of real clients and made-up ones of every API, and their faults."""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from klog.formats.structs.schema import load, names_by_key

from tests.commands.serve.readers import READERS
from tests.commands.serve.serving import Serving
from tests.formats.struct_writer import made_up_struct, write

HEAD_BYTES = 14
"""Size, API, version, correlation id, length of the client's id."""


def made_up(chance: random.Random) -> list[bytes]:
    """Return a request of each API in each version, size included, with made-up content."""
    found = []
    for key, (name, _) in sorted(names_by_key("wire").items()):
        schema = load("wire", name)
        for version in range(schema.lowest, schema.highest + 1):
            head = struct.pack(">hhih", key, version, 1, 1) + b"k" + b"\0" * schema.flexible.hold(version)
            data = head + write(schema, made_up_struct(schema.struct, version, chance), version)
            found.append(struct.pack(">i", len(data)) + data)
    return found


def recorded(folder: Path, topics: Sequence[str]) -> list[bytes]:
    """Return what consumers of three kinds send when they read *topics* of *folder*, alone and in a group."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with Serving(folder, "--advertise", f"127.0.0.1:{listener.getsockname()[1]}") as serving:
            streams: list[bytearray] = []
            threading.Thread(target=_listen, args=(listener, serving.port, streams), daemon=True).start()
            for name, reader in READERS.items():
                for topic in topics:
                    reader(f"127.0.0.1:{listener.getsockname()[1]}", topic, "read_committed", None)
                reader(f"127.0.0.1:{listener.getsockname()[1]}", topics[0], "read_uncommitted", f"group of {name}")
        listener.shutdown(socket.SHUT_RDWR)
    return sorted({request for stream in streams for request in _requests(bytes(stream))})


def _listen(listener: socket.socket, port: int, streams: list[bytearray]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        streams.append(bytearray())
        threading.Thread(target=_pass_on, args=(client, port, streams[-1]), daemon=True).start()


def _pass_on(client: socket.socket, port: int, stream: bytearray) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        try:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    if ready is client:
                        stream += data
                    (server if ready is client else client).sendall(data)
        except ConnectionError:
            return


def _requests(stream: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(stream):
        end = position + 4 + int.from_bytes(stream[position : position + 4], "big")
        yield stream[position:end]
        position = end


# ---------------------------------------------------------------- the faults


def spoilt(requests: Sequence[bytes], chance: random.Random) -> bytes:
    """Return one of *requests* with something wrong; its size is mostly set right again, or it would not get far."""
    data = bytearray(chance.choice(requests)[4:])
    for _ in range(chance.choice((1, 1, 2, 4))):
        data = chance.choice((_flipped, _cut, _repeated, _grown, _spliced))(data, requests, chance)
    size = len(data) + (chance.choice((-3, -1, 1, 2, 1 << 16)) if chance.random() < 0.05 else 0)
    return struct.pack(">i", size) + data


def _flipped(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    for _ in range(chance.choice((1, 1, 3, 8))):
        if data:  # seldom in front, the place of the API and the version
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def _cut(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    first = chance.randrange(len(data) + 1)
    return data[:first] if chance.random() < 0.5 else data[:first] + data[first + chance.randrange(1, 20) :]


def _repeated(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    first = chance.randrange(len(data) + 1)
    end = min(len(data), first + chance.randrange(1, 64))
    times = min(chance.choice((1, 2, 50, 5000)), 200_000 // max(1, end - first))
    return data[:end] + data[first:end] * times + data[end:]


def _grown(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    at = chance.randrange(len(data) + 1)
    length = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x7f\xff", b"\x80\0"))
    return data[:at] + length + data[at + len(length) :]


def _spliced(data: bytearray, requests: Sequence[bytes], chance: random.Random) -> bytearray:
    other = chance.choice(requests)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(4, len(other)) :]


# ---------------------------------------------------------------- who sends it


@contextmanager
def attacked(port: int, requests: Sequence[bytes], seed: int, clients: int = 4) -> Iterator[list[int]]:
    """Have *clients* send spoilt *requests* as long as the `with` lasts; yields how many each has sent so far."""
    done, sent = threading.Event(), [0] * clients
    threads = [
        threading.Thread(target=_attack, args=(port, requests, random.Random(f"{seed}-{number}"), done, sent, number))
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _attack(
    port: int, requests: Sequence[bytes], chance: random.Random, done: threading.Event, sent: list[int], number: int
) -> None:
    while not done.is_set():
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                for _ in range(chance.choice((1, 5, 50))):
                    connection.sendall(spoilt(requests, chance))
                    sent[number] += 1
                    connection.settimeout(chance.choice((0.001, 0.02, 0.1)))
                    if not connection.recv(chance.choice((4, 100, 1 << 16))):
                        break
        except OSError:  # it was cut off, it waits for others in a group, or it took too long
            pass
