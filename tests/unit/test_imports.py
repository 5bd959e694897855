"""What importing a part brings in, and what it may name. The directions between our own parts are import-linter's."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("ctx_tracer", "ctx_collector")

#: The longest list of foreign packages each part may import anywhere, functions included.
FOREIGN = {
    "ctx_tracer/__init__.py": set(),
    "ctx_tracer/model.py": set(),
    "ctx_tracer/rules.py": set(),
    "ctx_tracer/semconv.py": set(),
    "ctx_tracer/probe": {"paddle"},
    "ctx_tracer/record": set(),
    "ctx_tracer/verdict": set(),
    "ctx_tracer/known_issues": set(),
    "ctx_tracer/doctor": {"paddle", "numpy"},
}


def _imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def _files(part: str) -> list[Path]:
    path = ROOT / part
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _isolated(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python without site-packages, environment variables and user folders."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("part", FOREIGN)
def test_a_part_names_only_the_foreign_packages_it_may(part):
    files = _files(part)
    assert files, f"{part} is gone; take it out of the list"
    for file in files:
        named = {name.split(".")[0] for name in _imports(file)} - set(sys.stdlib_module_names) - set(OURS)
        assert named <= FOREIGN[part], f"{file.relative_to(ROOT)} imports {sorted(named - FOREIGN[part])}"


@pytest.mark.parametrize(
    "part",
    [
        "ctx_tracer/attach/activate.py",
        "ctx_tracer/attach/agent",
        "ctx_tracer/attach/control.py",
        "ctx_tracer/attach/site",
        "ctx_tracer/model.py",
        "ctx_tracer/probe",
        "ctx_tracer/record",
        "ctx_tracer/rules.py",
    ],
)
def test_what_is_injected_is_written_for_python_3_8(part):
    for file in _files(part):
        ast.parse(file.read_text(), filename=str(file), feature_version=(3, 8))


@pytest.mark.parametrize("module", ["ctx_tracer", "ctx_tracer.probe", "ctx_tracer.record", "ctx_tracer.verdict"])
def test_it_imports_where_no_third_party_package_is(module):
    done = _isolated(f"import {module}")
    assert done.returncode == 0, done.stderr


def test_importing_the_package_brings_in_no_heavy_package():
    heavy = "{'paddle', 'numpy', 'opentelemetry', 'google', 'requests', 'typer', 'fastapi', 'duckdb', 'sqlalchemy'}"
    code = f"import sys; import ctx_tracer; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_imports_point_one_way():
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[done.stdout.find("Contracts") :] + done.stderr
