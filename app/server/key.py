"""The key of the API: what FORETOKEN_API_KEY holds must come with every request under /v1."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from app.server.refusals import Refused
from engine.errors import NotSupported

VARIABLE = "FORETOKEN_API_KEY"
MISSING = "This studio asks for an API key. Send it as 'Authorization: Bearer KEY'."
WRONG = "The API key is not this studio's. Send the one that it was started with."


BLANK = f"{VARIABLE} holds only blanks, which nobody can send. Give it a key, or leave it empty to ask for none."


class ApiKey:
    """expected : the key; "" = none is asked for. Blanks around it do not count: a header cannot carry them."""

    def __init__(self, expected: str):
        if expected and not expected.strip():
            raise NotSupported(BLANK)
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
