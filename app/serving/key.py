"""The key of the API: what FORETOKEN_API_KEY holds must come with every request under /v1."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from app.serving.refusals import Refused

VARIABLE = "FORETOKEN_API_KEY"
MISSING = "This studio asks for an API key. Send it as 'Authorization: Bearer KEY'."
WRONG = "The API key is not this studio's. Send the one that it was started with."


class Key:
    """expected : the key; "" = none is asked for"""

    def __init__(self, expected: str):
        self._expected = expected.encode()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Refused, 401, unless the key came. The comparison takes the same time for every wrong key."""
        if not self._expected:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            raise Refused(MISSING, status=401, code="invalid_api_key")
        # a server reads headers as Latin-1, whatever their bytes mean
        if not hmac.compare_digest(given.strip().encode("latin-1"), self._expected):
            raise Refused(WRONG, status=401, code="invalid_api_key")
