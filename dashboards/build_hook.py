"""Hatchling's hook: a wheel, a source archive and an editable install carry the dashboard of their sources."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Hatchling loads this file by its path, so the module beside it has to be made importable.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from dashboard_build import NODE_REQUIREMENTS, Dashboard, find_node


class DashboardBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # its parameter is the builder's configuration
    """Builds dashboards/web into server/ctx_collector/static when the sources changed."""

    PLUGIN_NAME = "custom"

    @property
    def dashboard(self) -> Dashboard:
        """The dashboard of the project that is being built."""
        return Dashboard(Path(self.root))

    def dependencies(self) -> list[str]:
        """Ask the front end for Node.js when a build is due and the machine has none."""
        if self.dashboard.is_due() and find_node() is None:
            return list(NODE_REQUIREMENTS)
        return []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the interface's arguments
        """Build the dashboard before the files of the distribution are collected."""
        if not self.dashboard.has_sources():
            self.app.display_info("no dashboard sources here: the collector is built without pages")
            return
        if self.dashboard.is_due():
            self.app.display_info("building the dashboard (npm ci, vite build)")
            self.dashboard.build()
