"""The errors between klog and a broker, as exceptions: one line each, with host and port."""

from __future__ import annotations

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


class StoppedError(KlogError):
    """The caller's request to stop ended a wait."""

    exit_code = ExitCode.CANCELLED
