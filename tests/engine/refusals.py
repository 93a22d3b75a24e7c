"""A refusal: a user error whose message is one sentence that a terminal and a page can show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.sentences import wrong


@contextmanager
def refuses(kind: type[Exception], match: str | None = None) -> Iterator[pytest.ExceptionInfo]:
    """Expects that the block raises an error of a kind, with one sentence that matches `match`."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    text = str(caught.value)
    assert not wrong(text) and len(text) > 20, text
