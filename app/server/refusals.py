"""Refusals: an error of a caller with what HTTP says about it, in the form that OpenAI's clients read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.sentences import without_paths
from engine.errors import ForetokenError

INVALID, OVERLOADED, OURS = "invalid_request_error", "rate_limit_error", "server_error"
CLOSING = "The studio is being closed. Send the request again when it is back."
BUG = "The studio failed in a way it should not. Its log has the details; report them."


class ClientLeft(Exception):
    """Nobody reads the answer any more."""


class Refused(ForetokenError):
    """A request that is not answered.

    status : of HTTP; param : the field that is wrong; code : for programs; kind : OpenAI's "type"
    """

    def __init__(self, sentence: str, status: int = 400, param: str | None = None, code: str | None = None, kind: str = INVALID):
        super().__init__(sentence)
        self.status, self.param, self.code, self.kind = status, param, code, kind

    def body(self) -> dict[str, Any]:
        """The body of the answer."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


@contextmanager
def concerning(param: str, code: str = "invalid_value") -> Iterator[None]:
    """Says of an error inside which field it is about."""
    try:
        yield
    except Refused:
        raise
    except ForetokenError as e:
        raise refusal_of(e, param, code) from e


def refusal_of(error: ForetokenError, param: str | None = None, code: str | None = None) -> Refused:
    """An error of the engine as a refusal, without this machine's folders."""
    return Refused(without_paths(str(error)), param=param, code=code)
