"""How the probe gets into the processes of a job, and that nothing else about them changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.jobs import CTX_TRACER, run

# What the probe says about a Paddle it does not know tells that it was called, and when.
PADDLE = {
    "paddle/__init__.py": "__version__ = '9.9.9'\n"
    "import paddle.distributed.fleet.recompute.recompute\n"
    "print('paddle')\n",
    "paddle/distributed/__init__.py": "",
    "paddle/distributed/fleet/__init__.py": "",
    "paddle/distributed/fleet/recompute/__init__.py": "",
    "paddle/distributed/fleet/recompute/recompute.py": "def recompute(): 'the function'\n",
    "paddle/distributed/launch/__init__.py": "",
    "paddle/distributed/launch/__main__.py": "import paddle, subprocess, sys, os\n"
    "subprocess.run([sys.executable, *sys.argv[1:]], env={**os.environ, 'PADDLE_TRAINER_ID': '0'}, check=True)\n",
}
DECLINED = "not tracing: Paddle 9.9.9 is not one of the known versions"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a stand-in for Paddle."""
    for name, text in PADDLE.items():
        file = tmp_path / "site" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "site"


def python(code: str, *options: str) -> list[str]:
    return [sys.executable, *options, "-c", code]


def test_the_probe_is_installed_once_after_the_whole_of_paddle(tmp_path: Path, site: Path) -> None:
    traced = run(
        tmp_path,
        python("import paddle.distributed.fleet, paddle; import sys; print('done', file=sys.stderr)"),
        PYTHONPATH=str(site),
    )
    assert traced.code == 0
    assert traced.err.count(DECLINED) == 1
    assert traced.err.index(DECLINED) < traced.err.index("done")


def test_a_python_that_never_imports_paddle_loads_nothing_of_ours(tmp_path: Path) -> None:
    code = "import sys, json; print(json.dumps(sorted(sys.modules)))"
    plain = subprocess.run(python(code), capture_output=True, text=True, check=True)
    traced = run(tmp_path, python(code))
    extra = set(json.loads(traced.out)) - set(json.loads(plain.stdout))
    # Debian has a sitecustomize of its own, which we load with importlib.util; early 3.11 has that import contextlib.
    assert {name.partition(".")[0] for name in extra} <= {"sitecustomize", "importlib", "warnings", "contextlib"}


def test_the_launcher_is_left_alone_and_its_ranks_are_not(tmp_path: Path, site: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import paddle, sys; print('rank', file=sys.stderr)\n")
    traced = run(tmp_path, [sys.executable, "-m", "paddle.distributed.launch", str(script)], PYTHONPATH=str(site))
    assert traced.err.count(DECLINED) == 1
    assert traced.err.index(DECLINED) < traced.err.index("rank")


def test_off_by_a_switch(tmp_path: Path, site: Path) -> None:
    traced = run(tmp_path, python("import paddle"), PYTHONPATH=str(site), CTX_TRACER_DISABLE="1")
    assert DECLINED not in traced.err
    assert traced.out == "paddle\n"
    assert traced.err == f"ctx-tracer: {traced.report['sentence']}\n"
    assert traced.report["sentence"].startswith("Nothing was observed. CTX_TRACER_DISABLE=1 is set")


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ([], "pass", "Nothing was observed. No Python process of this command imported Paddle."),
        (["-I"], "pass", "Nothing was observed. Python was started with -I, which keeps ctx-tracer out"),
        ([], "import paddle", "Nothing was observed. Paddle 9.9.9 was imported and is not watched"),
        ([], "raise SystemExit(4)", "Nothing was observed, and the command ended with exit code 4. No Python process"),
    ],
)
def test_why_nothing_was_observed(tmp_path: Path, site: Path, options: list[str], code: str, told: str) -> None:
    traced = run(tmp_path, python(code, *options), PYTHONPATH=str(site))
    assert traced.report["sentence"].startswith(told)
    assert traced.report["verdict"] == "undecided"


def test_the_search_path_and_the_modules_of_the_program_are_its_own(tmp_path: Path, site: Path) -> None:
    code = "import sys, json, os; print(json.dumps([sys.path, os.environ['PYTHONPATH'].split(os.pathsep)[1:]]))"
    settings = {"PYTHONPATH": f"{site}:relative::/tmp"}
    plain = subprocess.run(
        python(code), capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, **settings}
    )
    traced = run(tmp_path, python(code), **settings)
    path, variable = json.loads(traced.out)
    assert path == json.loads(plain.stdout)[0]
    assert variable == [str(site), "relative", "", "/tmp"]


def test_the_users_sitecustomize_runs_and_can_be_imported(tmp_path: Path, site: Path) -> None:
    # The tracer is a Python program too, and runs it as well.
    (site / "sitecustomize.py").write_text("import os; 'CTX_TRACER_RUN_ID' in os.environ and print('mine'); value = 7")
    traced = run(
        tmp_path,
        python("import sitecustomize; print(sitecustomize.value, sitecustomize.__file__)"),
        PYTHONPATH=str(site),
    )
    assert traced.out.split() == ["mine", "7", str(site / "sitecustomize.py")]


def test_an_error_in_the_users_sitecustomize_stays_his(tmp_path: Path, site: Path) -> None:
    (site / "sitecustomize.py").write_text("raise RuntimeError('mine')\n")
    code = "import paddle"
    traced = run(tmp_path, python(code), PYTHONPATH=str(site))
    plain = subprocess.run(
        python(code), capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(site)}
    )
    assert plain.stderr.strip() in traced.err
    assert traced.out == plain.stdout
    assert DECLINED in traced.err


def test_paddle_keeps_its_loader_and_its_source(tmp_path: Path, site: Path) -> None:
    code = (
        "import paddle, inspect, importlib, sys; m = sys.modules['paddle.distributed.fleet.recompute.recompute'];"
        "print(type(m.__loader__).__name__, m.__spec__.loader is m.__loader__, 'exec_module' in vars(m.__loader__));"
        "print(inspect.getsource(m.recompute), end='');"
        "importlib.reload(m)"
    )
    traced = run(tmp_path, python(code), PYTHONPATH=str(site))
    assert traced.out == "paddle\nSourceFileLoader True False\ndef recompute(): 'the function'\n"


def test_a_paddle_that_fails_to_import_fails_as_it_would(tmp_path: Path, site: Path) -> None:
    (site / "paddle" / "__init__.py").write_text("raise ImportError('libcuda.so.1')\n")
    traced = run(tmp_path, python("import paddle"), PYTHONPATH=str(site))
    assert traced.code == 1
    assert "ImportError: libcuda.so.1" in traced.err
    assert traced.report["undecided"] == ["Paddle could not be imported: ImportError: libcuda.so.1"]
    assert DECLINED not in traced.err


def test_what_goes_wrong_in_our_part_is_told_and_harms_nothing(tmp_path: Path, site: Path) -> None:
    (site / "paddle" / "__init__.py").write_text(PADDLE["paddle/__init__.py"] + "del __version__\n")
    traced = run(tmp_path, python("import paddle; print('trained')"), PYTHONPATH=str(site))
    assert (traced.code, traced.out) == (0, "paddle\ntrained\n")
    assert "is not observed: AttributeError" in traced.err
    assert traced.report["verdict"] == "undecided"


def test_an_environment_without_this_project_can_be_watched(tmp_path: Path, site: Path) -> None:
    """A bare Python: no site-packages of ours, nothing but Paddle."""
    base = Path(sys.base_prefix) / "bin" / "python3"
    traced = run(tmp_path, [str(base), "-c", "import paddle, ctx_tracer.model"], PYTHONPATH=str(site))
    assert traced.code == 0, traced.err
    assert traced.err.count(DECLINED) == 1


def test_a_run_within_a_run_watches_the_inner_job_once(tmp_path: Path, site: Path) -> None:
    traced = run(
        tmp_path, [*CTX_TRACER, "run", "--report", "inner.json", "--", *python("import paddle")], PYTHONPATH=str(site)
    )
    assert traced.code == 0
    assert traced.err.count(DECLINED) == 1
    assert (tmp_path / "inner.json").exists()


def test_a_program_that_watches_itself_says_that_it_is_switched_off() -> None:
    done = subprocess.run(
        python("import ctx_tracer; print(ctx_tracer.instrument())"),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "CTX_TRACER_DISABLE": "1"},
    )
    assert (done.stdout, done.stderr) == ("False\n", "ctx-tracer: not tracing: CTX_TRACER_DISABLE=1 is set\n")


@pytest.mark.parametrize("first", ["", "import paddle.distributed.fleet; "])
def test_the_entry_point_of_auto_instrumentation(tmp_path: Path, site: Path, first: str) -> None:
    """As `opentelemetry-instrument` calls it in every process; the real one does in test_external.py."""
    code = (
        f"{first}from ctx_tracer.attach.auto_instrumentation import CtxTracerInstrumentor as I;"
        "I().instrument(skip_dep_check=True); import paddle, sys; print('done', file=sys.stderr); I().uninstrument()"
    )
    done = subprocess.run(
        python(code), capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(site)}
    )
    assert done.stderr.count(DECLINED) == 1
    assert done.stderr.index(DECLINED) < done.stderr.index("done")
