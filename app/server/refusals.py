"""Refusals: a caller's error with its HTTP status, in the form that OpenAI's clients read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.sentences import without_paths
from engine.errors import ForetokenError

INVALID, OVERLOADED, OURS = "invalid_request_error", "rate_limit_error", "server_error"
CLOSING = "The studio is shutting down. Send the request again when it is back."
BUG = "This is a bug in the studio. Please report it with the details in its log."


class ClientLeft(Exception):
    """The client has disconnected."""


class Refused(ForetokenError):
    """A refused request.

    status : of HTTP; param : the invalid field; code : for programs; kind : OpenAI's "type"
    """

    def __init__(self, sentence: str, status: int = 400, param: str | None = None, code: str | None = None, kind: str = INVALID):
        super().__init__(sentence)
        self.status, self.param, self.code, self.kind = status, param, code, kind

    def body(self) -> dict[str, Any]:
        """The body of the response."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


@contextmanager
def concerning(param: str, code: str = "invalid_value") -> Iterator[None]:
    """Adds the name of a field to an error raised inside."""
    try:
        yield
    except Refused:
        raise
    except ForetokenError as e:
        raise refusal_of(e, param, code) from e


def refusal_of(error: ForetokenError, param: str | None = None, code: str | None = None) -> Refused:
    """An engine error as a refusal, without paths of this machine."""
    return Refused(without_paths(str(error)), param=param, code=code)
