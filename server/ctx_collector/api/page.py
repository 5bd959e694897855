"""The page's files: built from dashboards/web into the package, or an explanation of how to build them."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent.parent / "static"
# Paths the page routes by itself (docs/api.md).
_PAGE_PATHS = re.compile(r"/?(runs|alerts|rules)(/.*)?$")
# Paths of the interface; never answered with the page.
_INTERFACE = re.compile(r"/?(api|v1|healthz|readyz|metrics)(/.*)?$")

_MISSING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>ctx-tracer</title>
<h1>The dashboard is not built</h1>
<p>The collector runs and takes spans; only its page is missing from this installation.</p>
<p>In a checkout: <code>./run serve</code> builds it, or <code>npm ci</code> and <code>npm run build</code> in
<code>dashboards/web</code>. Otherwise install the package again: <code>pip install 'ctx-tracer[collector]'</code>
brings it.</p>
<p>On a terminal: <code>ctx-tracer runs</code>, <code>ctx-tracer alerts</code>.
For programs: <a href="/api/v1/runs">/api/v1/runs</a>.</p>
</html>
"""


class PageMount(Mount):
    """The page at every path but the interface's, so that there a wrong method is answered with 405."""

    def __init__(self) -> None:
        super().__init__("/", Page())

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As a router asks it."""
        if _INTERFACE.match(scope["path"]):
            return Match.NONE, {}
        return super().matches(scope)


class Page(StaticFiles):
    """Static files with the page itself for every path that names no file."""

    def __init__(self, directory: Path = STATIC) -> None:
        super().__init__(directory=directory, check_dir=False)
        self._index = directory / "index.html"

    async def check_config(self) -> None:
        """The folder may be missing, and appear when the page is built."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, or the page; 404 with the page for a path that is none of its own."""
        url = scope["path"]
        if path not in (".", "index.html") and not _PAGE_PATHS.match(url):
            try:
                response = await super().get_response(path, scope)
            except HTTPException as error:
                if error.status_code != 404 or url.startswith("/assets/"):
                    raise
                return self._page(404)
            # Vite puts a hash of the content into the names below assets/.
            hashed = url.startswith("/assets/")
            response.headers["cache-control"] = "public, max-age=31536000, immutable" if hashed else "no-cache"
            return response
        return self._page(200)

    def _page(self, status: int) -> Response:
        if self._index.is_file():
            return HTMLResponse(self._index.read_bytes(), status, headers={"cache-control": "no-cache"})
        return HTMLResponse(_MISSING, status if status == 404 else 503, headers={"cache-control": "no-store"})
