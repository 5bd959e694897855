"""The collector's REST interface (docs/api.md) as the read commands need it, and what to do when it does not answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from ctx_tracer.cli.errors import CommandError

DEFAULT_COLLECTOR = "http://127.0.0.1:4318"
_TIMEOUT_S = 15.0  # the collector's own limit for a query is shorter


class Client:
    """Asks one collector. Every method raises CommandError."""

    def __init__(self, collector: str | None) -> None:
        import requests

        self.base = (collector or DEFAULT_COLLECTOR).rstrip("/")
        if urlsplit(self.base).scheme not in ("http", "https"):
            raise CommandError(
                f"{self.base!r} is not an http:// or https:// address", "give it with --collector http://HOST:PORT", 2
            )
        self._session = requests.Session()
        # A proxy meant for the outside world does not know this machine.
        self._session.trust_env = urlsplit(self.base).hostname not in ("127.0.0.1", "localhost", "::1")
        token = os.environ.get("CTX_TRACER_TOKEN")
        if token:
            self._session.headers["authorization"] = f"Bearer {token}"

    def runs(self) -> list[dict[str, Any]]:
        """`RunSummary` of every run, newest first."""
        found: list[dict[str, Any]] = self._get("/api/v1/runs", "runs")
        return found

    def run(self, name: str) -> dict[str, Any]:
        """A `Run`; exit code 2 with the nearest names for one that does not exist."""
        found: dict[str, Any] = self._get(f"/api/v1/runs/{quote(name, safe='')}", None, unknown=name)
        return found

    def logs(self, run: str, query: Mapping[str, str | None]) -> list[dict[str, Any]]:
        """Log records of a run, newest first; exit code 2 with the nearest names for one that does not exist."""
        given = {key: value for key, value in query.items() if value is not None}
        path = f"/api/v1/runs/{quote(run, safe='')}/logs"
        found: list[dict[str, Any]] = self._get(path, "logs", given, unknown=run)
        return found

    def alerts(self, **query: str | None) -> list[dict[str, Any]]:
        """`Alert`s, worst first; exit code 2 with the nearest names for a `run` that does not exist."""
        given = {name: value for name, value in query.items() if value is not None}
        found: list[dict[str, Any]] = self._get("/api/v1/alerts", "alerts", given, unknown=query.get("run"))
        return found

    def _get(self, path: str, key: str | None, query: dict[str, str] | None = None, unknown: str | None = None) -> Any:
        import requests

        try:
            answer = self._session.get(self.base + path, params=query, timeout=_TIMEOUT_S, allow_redirects=False)
            body = answer.json()
        except requests.JSONDecodeError as error:
            raise CommandError(
                f"{self.base} answered with something else than JSON", "is this the collector's address?"
            ) from error
        except requests.RequestException as error:
            raise CommandError(
                f"no collector answers at {self.base}",
                "start one with `ctx-tracer serve`, or give its address with --collector or CTX_TRACER_COLLECTOR",
            ) from error
        if answer.status_code == 404 and unknown is not None:
            raise self._unknown(unknown)
        if answer.status_code in (401, 403):
            raise CommandError(f"{self.base} asks for a token", "set CTX_TRACER_TOKEN to one that may read")
        if answer.status_code != 200 or not isinstance(body, dict) or (key is not None and key not in body):
            told = body.get("error") if isinstance(body, dict) else None
            told = told if isinstance(told, dict) else {}
            raise CommandError(
                str(told.get("message") or f"{self.base} answered with HTTP {answer.status_code}"),
                str(told.get("remedy") or "is this the collector's address?"),
            )
        return body[key] if key is not None else body

    def _unknown(self, name: str) -> CommandError:
        from difflib import get_close_matches

        names = [str(run.get("run")) for run in self.runs()]
        near = get_close_matches(name, names, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        rest = "`ctx-tracer runs` lists all" if names else "the collector has not heard of any run yet"
        return CommandError(f"there is no run {name!r}", f"{hint}{rest}", 2)
