"""What can be set, by environment variable (CTX_COLLECTOR_*) or by the command line. docs/collector.md lists them."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from ctx_collector.errors import StartupError

ENV_PREFIX = "CTX_COLLECTOR_"

MIB = 1024 * 1024


def default_data_dir() -> Path:
    """`$XDG_DATA_HOME/ctx-tracer`, else `~/.local/share/ctx-tracer`."""
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "ctx-tracer"


class Settings(BaseSettings):
    """The collector's settings. Sizes are in bytes."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address to bind; any but a loopback address needs a token")
    port: int = Field(4318, ge=0, le=65535, description="port to bind; 0 takes a free one and prints it")
    data_dir: Path = Field(
        default_factory=default_data_dir, description="where both databases live; one collector each"
    )
    # Eight characters keep a typo or an empty variable from passing for a secret; they do not make a good one.
    token: SecretStr | None = Field(None, min_length=8, description="asked of every client, for ingest and for reading")
    ingest_token: SecretStr | None = Field(
        None, min_length=8, description="accepted for /v1/traces only, so that training nodes cannot read"
    )
    retention_days: float = Field(14.0, gt=0, description="age at which spans, runs and their alerts are deleted")
    # 20 MiB is also where the stock OpenTelemetry Collector stops reading.
    max_body: int = Field(20 * MIB, ge=1024, description="largest request body on the wire")
    max_inflated: int = Field(64 * MIB, ge=1024, description="largest request body once inflated")
    max_span: int = Field(1 * MIB, ge=1024, description="largest encoded span; a larger one is rejected by itself")
    max_spans: int = Field(50_000, ge=1, description="most spans in one request")
    # Four of the largest bodies; together with what is being read it bounds the memory of ingest.
    max_queue: int = Field(256 * MIB, ge=1024, description="most inflated bytes waiting for a commit; then 503")
    max_requests: int = Field(64, ge=1, description="most ingest requests read at a time; then 503")
    store_memory: int = Field(1024 * MIB, ge=64 * MIB, description="memory DuckDB may use")
    max_event_clients: int = Field(100, ge=1, description="most open /api/v1/events streams; then 503")
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="least severe log line written")

    @property
    def loopback(self) -> bool:
        """Whether `host` can only be reached from this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    def check_exposure(self) -> None:
        """Raises StartupError where less would be asked of clients than whoever set this up believes."""
        if self.ingest_token is not None and self.token is None:
            raise StartupError(
                "an ingest token alone protects nothing: everything may still be read and written without it",
                f"set {ENV_PREFIX}TOKEN as well",
            )
        if not self.loopback and self.token is None:
            raise StartupError(
                f"refusing to listen on {self.host} without a token: anyone who reaches it could read and write runs",
                f"set {ENV_PREFIX}TOKEN to a secret (python3 -c 'import secrets; print(secrets.token_urlsafe(24))'), "
                "or bind 127.0.0.1 and forward the port over SSH",
            )
