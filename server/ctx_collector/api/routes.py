"""The routes of docs/api.md under /api/v1."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.responses import JSONResponse

from ctx_collector import __version__
from ctx_collector.api import views
from ctx_collector.api.errors import ApiError, unknown_run
from ctx_collector.api.events import Client, TooManyClientsError
from ctx_collector.detect.heatmap import heat_map
from ctx_collector.detect.outcome import worst_first
from ctx_collector.detect.state import Run, RunKey
from ctx_collector.services import Services

router = APIRouter(prefix="/api/v1")

Attempt = Annotated[int | None, Query(ge=0)]


def services(request: Request) -> Services:
    """What `app.build` put together."""
    found: Services = request.app.state.services
    return found


Parts = Annotated[Services, Depends(services)]


def _find(parts: Services, run: str, attempt: int | None) -> Run:
    """The asked attempt; the caller holds the lock. Raises ApiError 404."""
    found = parts.book.find(run, attempt)
    if found is None:
        raise unknown_run(run, attempt)
    return found


def _key(parts: Services, run: str, attempt: int | None) -> RunKey:
    with parts.book.lock:
        return _find(parts, run, attempt).key


@router.get("/version")
def version() -> JSONResponse:
    """The collector's version."""
    return JSONResponse({"version": __version__})


@router.get("/runs")
def list_runs(parts: Parts, limit: Annotated[int, Query(ge=1, le=1_000)] = 200) -> JSONResponse:
    """The newest attempt of each run, newest first."""
    now_ns = time.time_ns()
    with parts.book.lock:
        runs = [parts.cache.summary(run, now_ns) for run in parts.book.newest()[:limit]]
    return JSONResponse({"runs": runs})


@router.get("/runs/{run:path}/heatmap")
def get_heatmap(parts: Parts, run: str, attempt: Attempt = None) -> JSONResponse:
    """Rank x region."""
    with parts.book.lock:
        content = parts.cache.of(_find(parts, run, attempt), "heatmap", heat_map)
    return JSONResponse(content)


@router.get("/runs/{run:path}/regions")
def get_regions(parts: Parts, run: str, attempt: Attempt = None) -> JSONResponse:
    """The regions of a run."""
    with parts.book.lock:
        content = views.regions(_find(parts, run, attempt))
    return JSONResponse({"regions": content})


@router.get("/runs/{run:path}/steps")
def get_steps(
    parts: Parts, run: str, attempt: Attempt = None, limit: Annotated[int, Query(ge=1, le=10_000)] = 200
) -> JSONResponse:
    """The newest steps."""
    totals = parts.observations.steps(*_key(parts, run, attempt), limit)
    return JSONResponse({"steps": [views.step_view(step) for step in totals]})


@router.get("/runs/{run:path}/spans")
def get_spans(
    parts: Parts,
    run: str,
    attempt: Attempt = None,
    region: str | None = None,
    rank: Annotated[int | None, Query(ge=0)] = None,
    step: int | None = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> JSONResponse:
    """Stored captures and replays."""
    key = _key(parts, run, attempt)
    spans = parts.observations.region_spans(*key, region=region, rank=rank, step=step, limit=limit)
    return JSONResponse({"spans": [views.span_view(span) for span in spans]})


@router.get("/runs/{run:path}/logs")
def get_logs(
    parts: Parts,
    run: str,
    attempt: Attempt = None,
    name: str | None = None,
    rank: Annotated[int | None, Query(ge=0)] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> JSONResponse:
    """Stored log records."""
    records = parts.observations.logs(*_key(parts, run, attempt), name=name, rank=rank, limit=limit)
    return JSONResponse({"logs": [views.log_view(record) for record in records]})


@router.get("/runs/{run:path}")
def get_run(parts: Parts, run: str, attempt: Attempt = None) -> JSONResponse:
    """One run."""
    with parts.book.lock:
        content = views.run_detail(_find(parts, run, attempt), parts.book.attempts(run), time.time_ns())
    return JSONResponse(content)


@router.get("/alerts")
def list_alerts(
    parts: Parts,
    run: str | None = None,
    attempt: Attempt = None,
    state: Literal["firing", "resolved"] | None = None,
    severity: Literal["info", "warning", "error"] | None = None,
    rule: str | None = None,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 500,
) -> JSONResponse:
    """Alerts, worst first, then newest; of the newest attempts."""
    with parts.book.lock:
        runs = parts.book.newest() if run is None else [_find(parts, run, attempt)]
        found = [
            alert
            for one in runs
            for alert in one.alerts.values()
            if state in (None, alert.state) and severity in (None, alert.severity) and rule in (None, alert.rule)
        ]
        content = [views.alert_view(alert) for alert in worst_first(found)[:limit]]
    return JSONResponse({"alerts": content})


@router.get("/alerts/{fingerprint}")
def get_alert(parts: Parts, fingerprint: str) -> JSONResponse:
    """One alert."""
    with parts.book.lock:
        alert = parts.book.alert(fingerprint)
        if alert is None:
            raise ApiError(404, "unknown_alert", f"there is no alert {fingerprint!r}", "GET /api/v1/alerts lists them")
        content = views.alert_view(alert)
    return JSONResponse(content)


@router.get("/rules")
def list_rules() -> JSONResponse:
    """The rule catalogue."""
    return JSONResponse({"rules": views.rules()})


async def _client(parts: Parts, run: str | None = None) -> AsyncIterator[Client]:
    try:
        client = parts.hub.subscribe(run)
    except TooManyClientsError as error:
        raise ApiError(
            503, "too_many_clients", "no more event streams can be opened", "close pages, or poll /api/v1/runs"
        ) from error
    try:
        yield client
    finally:
        parts.hub.unsubscribe(client)


@router.get("/events", response_class=EventSourceResponse)
async def events(parts: Parts, client: Annotated[Client, Depends(_client)]) -> AsyncIterator[ServerSentEvent]:
    """Changes as they happen; FastAPI adds the comment line every 15 s."""
    yield ServerSentEvent(comment="open")
    async for kind, run, fingerprint in parts.hub.changes(client):
        data: dict[str, Any] = {"kind": kind, "run": run}
        if fingerprint is not None:
            data["fingerprint"] = fingerprint
        yield ServerSentEvent(event="change", data=data)
