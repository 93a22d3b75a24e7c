"""The page as an application: it can be installed, and a file dropped anywhere opens in the right tab."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from app.requests import meshes
from engine.mesh.read import READERS
from tests.app.conftest import ROOT, Served
from tests.app.race_page import drop


def fetch(served: Served, path: str) -> tuple[str, bytes]:
    """(media type, content) of an address."""
    with urlopen(f"{served.address}{path}", timeout=60) as answer:
        return answer.headers["content-type"], answer.read()


def test_the_manifest_has_our_name_and_our_icon(served):
    kind, content = fetch(served, "/manifest.json")
    manifest = json.loads(content)
    assert kind.startswith("application/manifest+json")
    assert (manifest["name"], manifest["display"], manifest["start_url"]) == ("Foretoken", "standalone", "./")
    (icon,) = manifest["icons"]
    kind, content = fetch(served, icon["src"])
    assert (icon["sizes"], icon["type"]) == ("any", "image/svg+xml") and kind.startswith("image/svg+xml")
    assert content == (ROOT / "app" / "ui" / "style" / "icon.svg").read_bytes() and b"<script" not in content
    assert b'rel="manifest"' in fetch(served, "/")[1] and b'"pwa":true' in fetch(served, "/config")[1]


def test_the_page_knows_the_files_that_the_mesh_tab_reads():
    script = (ROOT / "app" / "ui" / "panels" / "drop.js").read_text(encoding="utf-8")
    assert set(re.findall(r'"(\.\w+)"', re.search(r"SHAPES = \[(.*?)\]", script)[1])) == set(READERS)


@pytest.mark.browser
def test_a_browser_would_install_it(open_page):
    page = open_page()
    session = page.context.new_cdp_session(page)
    errors = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [each["errorId"] for each in errors if each["errorId"] != "in-incognito"] == []  # the tests' windows are


@pytest.mark.browser
def test_a_cloud_that_is_dropped_anywhere_opens_in_the_mesh_tab(open_page):
    page = open_page()
    for name in ("scan.ply", "other.ply"):  # with the tab unopened, and opened
        drop(page, name, Path(meshes.EXAMPLES / "tower.ply").read_bytes())
        page.wait_for_selector(f"#mesh-notes >> text={name}: a point cloud")
        assert page.get_by_role("tab", name="Mesh").get_attribute("aria-selected") == "true"
        page.get_by_role("tab", name="Image").click()
