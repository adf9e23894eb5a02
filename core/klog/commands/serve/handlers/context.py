"""The context of a handler: the server's state, and the request with its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from klog.commands.serve.group_coordinator import GroupCoordinator
from klog.commands.serve.view import Topic, View
from klog.formats.structs.schema import Data

Answer: TypeAlias = Data
"""The body of a response; omitted fields have their defaults."""

ZERO_ID = "A" * 22
"""The uuid that means none."""


class ServerContext(NamedTuple):
    """The server's state: the disk, the groups, and the advertised address."""

    view: View
    groups: GroupCoordinator
    host: str
    port: int

    def node(self, called: str = "nodeId") -> Answer:
        """Return this node, the only one; *called* is the name of its number there."""
        return {called: self.view.node_id, "host": self.host, "port": self.port}

    def topic(self, name: str | None, topic_id: str = ZERO_ID) -> Topic | None:
        """Return the topic with this id, else with this name."""
        if topic_id != ZERO_ID:
            return self.view.topic_by_id(topic_id)
        return self.view.topics.get(name or "")


class RequestContext(NamedTuple):
    """A request, and its client; *still_there* raises when the client has disconnected."""

    body: Data
    version: int
    client_id: str
    host: str
    still_there: Callable[[], None] = lambda: None


class HangUpError(Exception):
    """No response can express it: the connection is closed, and the text is the reason."""
