"""Errors in the shape of docs/api.md."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from ctx_collector.store.observations import StoreError


class ApiError(Exception):
    """An answer other than 200: a status, a code for programs, a message and a remedy for people."""

    def __init__(self, status: int, code: str, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.remedy = remedy


def error_body(code: str, message: str, remedy: str | None = None) -> dict[str, Any]:
    """The body of every error."""
    return {"error": {"code": code, "message": message, "remedy": remedy}}


def unknown_run(run: str, attempt: int | None = None) -> ApiError:
    """404."""
    which = f"run {run!r}" if attempt is None else f"attempt {attempt} of run {run!r}"
    return ApiError(404, "unknown_run", f"there is no {which}", "GET /api/v1/runs lists the runs")


def install(app: FastAPI) -> None:
    """Make every error of `app` come in this shape."""

    @app.exception_handler(ApiError)
    async def _api(_request: Request, error: ApiError) -> JSONResponse:
        return JSONResponse(error_body(error.code, str(error), error.remedy), error.status)

    @app.exception_handler(StoreError)
    async def _store(_request: Request, error: StoreError) -> JSONResponse:
        remedy = "GET /readyz says whether it is a passing thing; ask for less with limit, rank or step"
        return JSONResponse(error_body("store_unavailable", str(error), remedy), 503)

    @app.exception_handler(RequestValidationError)
    async def _validation(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return JSONResponse(error_body("bad_request", f"{where}: {first['msg']}", "see docs/api.md"), 400)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 404:
            body = error_body("not_found", f"there is nothing at {request.url.path}")
        else:
            body = error_body("http_error", str(error.detail))
        return JSONResponse(body, error.status_code, headers=error.headers)
