"""The requests that klog sends to a cluster: all of them, each with its versions and its reason; and their failures.

None of them changes anything: no Produce, no commit, no JoinGroup, no creation of a topic by a request for its
metadata.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.base.errors import ExitCode, KlogError


class LostConnectionError(KlogError):
    """A broker that cannot be reached, does not answer in time, or closed the connection: another try may help."""


class ForeignAnswerError(KlogError):
    """The answer is none that a Kafka broker sends, or is larger than accepted."""


class LargeAnswerError(ForeignAnswerError):
    """An answer of *size* bytes is announced, more than was to be received; its content may well be Kafka's."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


class AuthenticationError(KlogError):
    """The broker refused who we are, or could not prove who it is."""


class RefusedRequestError(KlogError):
    """The broker answered a request with an error; *code* is its number."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


PASSING: Final = (LostConnectionError, ForeignAnswerError, RefusedRequestError)
"""The failures after which another try may help."""


class StoppedError(KlogError):
    """The caller's request to stop ended a wait."""

    exit_code = ExitCode.CANCELLED


class RequestVersions(NamedTuple):
    """The versions of one request that klog uses: the highest that the broker also has.  *why*: its purpose."""

    lowest: int
    highest: int
    why: str


REQUESTS: Final = {
    "ApiVersions": RequestVersions(0, 3, "which requests the broker has; the first one on a connection"),
    "SaslHandshake": RequestVersions(1, 1, "the mechanism"),
    "SaslAuthenticate": RequestVersions(0, 2, "name and password, or proofs; again before the session ends"),
    "Metadata": RequestVersions(10, 13, "topics with their ids, partitions, leaders, leader epochs; makes no topic"),
    "ListOffsets": RequestVersions(4, 11, "log start and high watermark"),
    "Fetch": RequestVersions(12, 18, "batches, as a consumer without a group (replica -1)"),
    "OffsetForLeaderEpoch": RequestVersions(3, 4, "where an epoch ended"),
    "DescribeConfigs": RequestVersions(1, 4, "what is set on topics"),
    "ListGroups": RequestVersions(0, 5, "names of groups"),
    "FindCoordinator": RequestVersions(1, 6, "the broker that keeps a group"),
    "OffsetFetch": RequestVersions(5, 9, "what a group has committed"),
}
"""The requests by name.  Fetch below 12 does not report diverging histories, Metadata below 10 has no topic ids."""
