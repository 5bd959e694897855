"""The composition root: builds the collector's parts, and runs them under uvicorn."""

from __future__ import annotations

import inspect
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from starlette.types import ASGIApp

from ctx_collector import __version__, logs
from ctx_collector.api import errors, health, routes
from ctx_collector.api.cache import Cache
from ctx_collector.api.events import Hub
from ctx_collector.api.page import PageMount
from ctx_collector.counters import Counters
from ctx_collector.detect.detector import Detector
from ctx_collector.errors import StartupError
from ctx_collector.ingest.asgi import Ingest
from ctx_collector.ingest.writer import Writer
from ctx_collector.security.gate import Gate
from ctx_collector.services import Services
from ctx_collector.settings import ENV_PREFIX, Settings
from ctx_collector.store.duck import DuckObservations
from ctx_collector.store.observations import StoreError
from ctx_collector.store.state import StateStore

SECONDS_A_DAY = 86_400


class Collector:
    """One collector on one data directory: its parts, its ASGI application, its end."""

    def __init__(self, settings: Settings) -> None:
        """Open the stores. Raises StartupError."""
        directory = _usable(settings.data_dir)
        retention_seconds = settings.retention_days * SECONDS_A_DAY
        counters = Counters()
        # DuckDB's lock says whether another collector uses the directory, so it comes before SQLite.
        self._observations = DuckObservations(directory, settings.store_memory)
        self._state = StateStore(directory)
        hub = Hub(counters, settings.max_event_clients)
        try:
            self._detector = Detector(
                self._observations,
                self._state,
                counters,
                retention_seconds=retention_seconds,
                announce=hub.announce,
            )
        except StoreError as error:
            raise StartupError(f"cannot read the stored alerts: {error}", "check the data directory") from error
        self._writer = Writer(
            self._observations,
            counters,
            max_queue=settings.max_queue,
            retention_seconds=retention_seconds,
            detected=lambda: self._detector.saved_watermark,
            committed=self._detector.notify,
        )
        self.services = Services(
            settings=settings,
            counters=counters,
            observations=self._observations,
            writer=self._writer,
            detector=self._detector,
            hub=hub,
            cache=Cache(),
        )
        counters.gauge(lambda: [("ready", "", float(health.not_ready(self.services) is None))])

    def app(self) -> ASGIApp:
        """The application: the gate, then ingest, then everything else."""
        # FastAPI instruments itself from 0.165 on, into whatever OpenTelemetry the process has: not here.
        options: dict[str, Any] = {}
        if "telemetry" in inspect.signature(FastAPI.__init__).parameters:
            options["telemetry"] = {"tracing": False}
        # /docs and /redoc load scripts from elsewhere.
        api = FastAPI(
            title="ctx-tracer collector",
            version=__version__,
            lifespan=self._lifespan,
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            redirect_slashes=False,
            **options,
        )
        api.state.services = self.services
        errors.install(api)
        api.include_router(routes.router)
        api.include_router(health.router)
        api.router.routes.append(PageMount())
        services = self.services
        return Gate(Ingest(api, services.writer, services.counters, services.settings), services.settings)

    @asynccontextmanager
    async def _lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        self.services.hub.start()
        self._detector.start()
        self._writer.start()
        try:
            yield
        finally:
            # By now the server has answered whoever waited for a commit; what is queued is committed and judged.
            self._writer.stop()
            self._detector.stop()
            self._observations.close()
            self._state.close()


class _Server(uvicorn.Server):
    """Ends the event streams when it is told to stop; uvicorn would wait for their clients to leave."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, without raising the signal once more at the end: a stop that was asked for is no failure."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hub.close()
        await super().shutdown(sockets)


def serve(settings: Settings | None = None, **overrides: Any) -> int:
    """Run a collector until SIGINT or SIGTERM.

    Args:
        settings: what to run; by default read from the environment.
        overrides: fields of Settings that win over the environment, when `settings` is not given.

    Returns:
        The exit code: 0 after a clean stop, 2 when it could not start (the reason and a remedy are on stderr).
    """
    try:
        settings = settings or Settings(**overrides)
        logs.configure(settings.log_level)
        settings.check_exposure()
        listener = _listen(settings)
        collector = Collector(settings)
    except StartupError as error:
        return _refuse(str(error), error.remedy)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]).upper()
        return _refuse(f"{ENV_PREFIX}{name}: {first['msg']}", "docs/collector.md lists the settings")
    config = uvicorn.Config(
        collector.app(),
        log_config=None,
        access_log=False,  # the address of a first visit holds the token
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=5,  # for requests that are half sent; whatever is queued is committed after it
    )
    _announce(settings, listener)
    _Server(config, collector.services.hub).run(sockets=[listener])
    structlog.get_logger("ctx_collector").info("collector stopped")
    return 0


def _usable(directory: Path) -> Path:
    try:
        # What a run is called and what its tensors are is nobody else's business on a shared machine.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(
            f"cannot create {directory}: {error.strerror}",
            f"name a directory you can write with --data-dir or {ENV_PREFIX}DATA_DIR",
        ) from error
    return directory


def _listen(settings: Settings) -> socket.socket:
    """A bound socket; bound before the stores are opened, so that a taken port costs nothing."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host.strip("[]"), settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise StartupError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}",
            f"another program may use it; name a free port with --port or {ENV_PREFIX}PORT (0 takes any)",
        ) from error
    return listener


def _announce(settings: Settings, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host and not settings.host.startswith("[") else settings.host
    structlog.get_logger("ctx_collector").info(
        "collector started",
        url=f"http://{host}:{port}",
        data=str(settings.data_dir),
        token="required" if settings.token else "none",
        version=__version__,
    )


def _refuse(message: str, remedy: str) -> int:
    sys.stderr.write(f"ctx-tracer: {message}\n  {remedy}\n")
    return 2
