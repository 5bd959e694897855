"""`ctx-tracer.toml`: what a project tells the tracer once for all its runs."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path

from ctx_tracer.verdict.suppress import NONE, Suppressions, parse

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG = "ctx-tracer.toml"


class ConfigError(ValueError):
    """The file cannot be used; the message names the file and the entry, and says what to write."""


def suppressions(path: Path | None) -> Suppressions:
    """Of the file at `path`, or (None) of `ctx-tracer.toml` in the working directory, if there is one.

    Raises ConfigError.
    """
    file = Path(CONFIG) if path is None else path
    if path is None and not file.exists():
        return NONE
    try:
        entries = parse(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are ones
        raise ConfigError(f"{file}: {error}") from error
    return Suppressions(entries, datetime.now(timezone.utc).date())
