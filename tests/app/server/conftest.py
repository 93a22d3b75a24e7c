"""Studios in this process with their own limits, key or tools. The one that all tests share is in tests/app/conftest.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from app.limits import Limits
from app.live.boards.lazy import Lazy
from app.live.worker import LocalRunner
from app.runs.run_store import RunStore
from app.server import studio
from app.server.page import Page


class Open(str):
    """A studio's address. page : that it serves; run_store : of its runs"""

    page: Page
    run_store: RunStore


@pytest.fixture(scope="module")
def open_studio(picto, low, tmp_path_factory) -> Iterator[Callable]:
    """A context manager that serves a studio."""
    folder = tmp_path_factory.mktemp("own-studios")
    ports = count(40_000 + os.getpid() % 10_000 * 2)  # not used by tests that run at the same time, nor by a studio that is closing
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETOKEN_HOME", str(folder / "home"))
        patch.setenv("GRADIO_TEMP_DIR", str(folder / "gradio"))

        @contextmanager
        def open_one(
            limits: Limits | None = None, local: bool = True, mcp: bool = False, runner: LocalRunner | None = None, any_model: bool = False,
            root_path: str | None = None, api_key: str = "",
        ) -> Iterator[Open]:  # fmt: skip
            run_store = RunStore(folder / "runs", limits or Limits())
            page = studio.build(
                picto,
                Lazy("lowpoly", folder, lambda: low),
                local=local,
                run_store=run_store,
                runner=runner,
                any_model=any_model,
                api_key=api_key,
            )
            port = studio.free_port("127.0.0.1", next(ports))
            where = studio.serve_page(page, "127.0.0.1", port, limits=limits, mcp=mcp, root_path=root_path)
            studio_address = Open(where.rstrip("/"))
            studio_address.page, studio_address.run_store = page, run_store
            yield studio_address
            page.close(verbose=False)

        yield open_one
