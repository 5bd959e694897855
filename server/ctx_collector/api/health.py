"""/healthz, /readyz and /metrics."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse

from ctx_collector.api.routes import Parts
from ctx_collector.services import Services
from ctx_collector.store.observations import StoreError

router = APIRouter()


def not_ready(parts: Services) -> str | None:
    """Why spans are not taken or not judged now; None when all is well."""
    if not parts.writer.alive:
        return "the write thread has ended; restart the collector"
    if not parts.detector.alive:
        return "the detection thread has ended; restart the collector"
    if parts.writer.failure is not None:
        return f"spans cannot be stored: {parts.writer.failure}"
    if parts.detector.failure is not None:
        return f"detection is held up: {parts.detector.failure}"
    try:
        parts.observations.oldest_received_after(parts.detector.watermark)
    except StoreError as error:
        return f"the store does not answer: {error}"
    return None


@router.get("/healthz")
async def healthz() -> JSONResponse:
    """The process lives."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
def readyz(parts: Parts) -> JSONResponse:
    """Whether spans are taken and judged."""
    reason = not_ready(parts)
    if reason is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "reason": reason}, 503)


@router.get("/metrics")
def metrics(parts: Parts) -> PlainTextResponse:
    """The collector's own counters."""
    return PlainTextResponse(parts.counters.render(), media_type="text/plain; version=0.0.4")
