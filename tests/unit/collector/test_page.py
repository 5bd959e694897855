"""Serving the built page."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from ctx_collector.api.page import Page, PageMount
from starlette.exceptions import HTTPException
from starlette.routing import Match


@pytest.fixture
def static(tmp_path):
    built = tmp_path / "static"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<title>page</title>")
    (built / "theme.js").write_text("1")
    (built / "assets" / "index-abc.js").write_text("2")
    (tmp_path / "secret").write_text("no")
    return built


def get(directory, path: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(Page(directory), raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
            return await http.get(path)

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["/", "/runs/a%2Fb", "/runs/x/alerts", "/alerts/9f", "/rules", "/rules/CT105"])
def test_the_pages_own_paths_are_the_page(static, path):
    answer = get(static, path)
    assert (answer.status_code, answer.text) == (200, "<title>page</title>")
    assert answer.headers["cache-control"] == "no-cache"


def test_hashed_files_stay_and_others_are_asked_for_again(static):
    assert "immutable" in get(static, "/assets/index-abc.js").headers["cache-control"]
    theme = get(static, "/theme.js")
    assert (theme.text, theme.headers["cache-control"]) == ("1", "no-cache")
    assert theme.headers["content-type"].startswith("text/javascript")


def test_any_other_path_is_the_page_with_404(static):
    answer = get(static, "/nowhere")
    assert (answer.status_code, answer.text) == (404, "<title>page</title>")


@pytest.mark.parametrize("path", ["/assets/index-old.js", "/api/v2/x", "/v1/metrics", "/readyz/x"])
def test_what_a_program_asks_for_is_never_the_page(static, path):
    if path.startswith("/assets/"):
        with pytest.raises(HTTPException) as missing:
            get(static, path)
        assert missing.value.status_code == 404
    else:
        match, _ = PageMount().matches({"type": "http", "method": "GET", "path": path})
        assert match == Match.NONE


@pytest.mark.parametrize("path", ["/../secret", "/%2e%2e/secret", "/assets/../../secret", "/..%2fsecret"])
def test_nothing_outside_the_folder_is_served(static, path):
    assert get(static, path).text != "no"


def test_a_page_that_is_not_built_says_how(tmp_path):
    answer = get(tmp_path / "static", "/")
    assert answer.status_code == 503
    assert "npm run build" in answer.text
    assert "<script" not in answer.text
    assert get(tmp_path / "static", "/nowhere").status_code == 404
