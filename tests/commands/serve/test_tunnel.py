"""A client on another machine sees the near end of a tunnel, and nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.commands.serve.readers import with_librdkafka
from tests.commands.serve.serving import Serving
from tests.commands.serve.test_clients import on_disk
from tests.conftest import FIXTURES

MODERN = FIXTURES / "modern"


class Tunnel:
    """As in `ssh -L`: connections to *port* are forwarded to its target.  *carried*: bytes of the answers."""

    def __init__(self, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self.leads_to, self.carried = 0, 0
        self._listener = listener

    def run(self) -> None:
        """Carry until the listener is closed."""
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.leads_to))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other, one is far), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, back: bool) -> None:
        with target, suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
                self.carried += len(data) if back else 0
            target.shutdown(socket.SHUT_RDWR)


@contextmanager
def tunnel() -> Iterator[Tunnel]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Tunnel(listener)
        threading.Thread(target=made.run, daemon=True).start()
        yield made
        listener.shutdown(socket.SHUT_RDWR)


def test_all_of_it_comes_through_the_tunnel() -> None:
    """Clients connect to the near end: otherwise they would use a port without a listener."""
    with tunnel() as near, Serving(MODERN, "--advertise", f"127.0.0.1:{near.port}") as serving:
        near.leads_to = serving.port
        rows = with_librdkafka(f"127.0.0.1:{near.port}", "idempotent", "read_committed", None)
        assert rows == on_disk(MODERN, "idempotent")
    size = sum(path.stat().st_size for path in (MODERN / "idempotent-0").glob("*.log"))
    assert near.carried > size
