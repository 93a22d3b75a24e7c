"""The key of the API: every request under /v1 must carry the key in the file of --api-key-file."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path

from app.server.refusals import Refused
from engine.errors import NotSupported

MISSING = "This studio asks for an API key. Send it as 'Authorization: Bearer KEY'."
WRONG = "The API key is not this studio's. Send the one that it was started with."
BLANK = "{} holds no key. Write one into it, or leave --api-key-file out to ask for none."


def read_key(file: Path) -> str:
    """The key in a text file, without blanks around it. Raises NotSupported if the file cannot be read or holds none."""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise NotSupported(f"The API key cannot be read from {file} ({getattr(e, 'strerror', None) or e}).") from e
    if not key:
        raise NotSupported(BLANK.format(file))
    return key


class ApiKey:
    """expected : the key; "" = none is asked for. Blanks around it do not count: a header cannot carry them."""

    def __init__(self, expected: str):
        self._expected = expected.strip().encode("utf-8", "surrogateescape")

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Refused, 401, unless the key came. The comparison takes the same time for every wrong key."""
        if not self._expected:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Refused(MISSING, status=401, code="invalid_api_key")
        # a server reads headers as Latin-1, whatever their bytes mean
        if not hmac.compare_digest(key.strip().encode("latin-1"), self._expected):
            raise Refused(WRONG, status=401, code="invalid_api_key")
