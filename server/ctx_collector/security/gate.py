"""In front of everything: which requests are let in, and what their answers allow a browser to do."""

from __future__ import annotations

import hashlib
import hmac
import re
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ctx_collector.api.errors import error_body
from ctx_collector.ingest.signals import SIGNALS
from ctx_collector.settings import Settings

COOKIE = "ctx_collector_session"
# Names by which a browser on this machine reaches a loopback address.
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "[::1]"}
# All of a Host header: a name and at most a port.
_HOST = re.compile(r"(\[[^\]]*\]|[^:,\s]*)(:\d{1,5})?")
# What may be seen without a token: whether the process lives. The page's files carry no data.
_OPEN_PATHS = {"/healthz", "/readyz"}
_GUARDED = ("/api/", "/v1/", "/metrics")

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Gate:
    """An ASGI callable around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._token = settings.token.get_secret_value() if settings.token else None
        self._ingest_token = settings.ingest_token.get_secret_value() if settings.ingest_token else None
        # With a token a page that rebinds a name of its own to this address has nothing to show for it.
        self._check_host = settings.loopback and self._token is None
        self._hosts = _LOOPBACK_NAMES | {settings.host, f"[{settings.host}]"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # the collector speaks no WebSocket; the server closes it
        headers = Headers(scope=scope)
        response = self._wrong_host(headers) or self._sign_in(scope) or self._unauthorized(scope, headers)
        handler = self._app if response is None else response
        await handler(scope, receive, _with_headers(scope["path"], send))

    def _wrong_host(self, headers: Headers) -> Response | None:
        """A page elsewhere may point its own name at 127.0.0.1; its requests then carry that name."""
        if not self._check_host:
            return None
        host = headers.get("host", "")
        parts = _HOST.fullmatch(host)
        if parts and parts[1].lower() in self._hosts:
            return None
        message = f"the collector on this address does not answer to the name {parts[1] if parts else host!r}"
        remedy = "use http://127.0.0.1 with its port, or set CTX_COLLECTOR_TOKEN to serve it under another name"
        return JSONResponse(error_body("wrong_host", message, remedy), 421)

    def _sign_in(self, scope: Scope) -> Response | None:
        """`?token=` on a page: put it into a cookie that no script can read, and out of the address."""
        if self._token is None or scope["method"] != "GET" or scope["path"].startswith(_GUARDED):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == "token"), None)
        if given is None:
            return None
        if not _same(given, self._token):
            return JSONResponse(error_body("wrong_token", "this is not the collector's token", _REMEDY), 401)
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        # A path that began with two slashes would lead to another host.
        path = "/" + scope["raw_path"].decode("latin-1").lstrip("/")
        response = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        secure = scope.get("scheme") == "https"
        response.set_cookie(COOKIE, _session(self._token), httponly=True, samesite="strict", secure=secure)
        return response

    def _unauthorized(self, scope: Scope, headers: Headers) -> Response | None:
        path = scope["path"]
        if self._token is None or path in _OPEN_PATHS or not path.startswith(_GUARDED):
            return None
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        bearer = bearer.strip() if scheme.lower() == "bearer" else ""
        if bearer and _same(bearer, self._token):
            return None
        if path in SIGNALS:
            if bearer and self._ingest_token is not None and _same(bearer, self._ingest_token):
                return None
        elif _same(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""), _session(self._token)):
            return None
        body = error_body("unauthorized", "this needs the collector's token", _REMEDY)
        return JSONResponse(body, 401, headers={"www-authenticate": "Bearer"})


_REMEDY = "send 'Authorization: Bearer TOKEN' (OTEL_EXPORTER_OTLP_HEADERS), or open the page once as /?token=TOKEN"


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _session(token: str) -> str:
    """What the cookie holds: not the token, so that a leaked cookie is no good for ingest."""
    return hashlib.sha256(f"ctx-collector session {token}".encode()).hexdigest()


def _with_headers(path: str, send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            if path.startswith(_GUARDED):
                headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers
