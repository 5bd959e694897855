"""What ./run says when something is missing, and what it passes on. No environment is made here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The programs of a minimal machine that has no Python.
PROGRAMS = [
    "awk",
    "basename",
    "cat",
    "cksum",
    "cut",
    "date",
    "df",
    "dirname",
    "flock",
    "grep",
    "head",
    "mkdir",
    "mv",
    "printf",
    "rm",
    "sed",
    "sh",
    "sleep",
    "tail",
]


class Checkout:
    """A copy of what ./run reads, on a machine with the programs of `bin` only."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.bin = folder / "bin"
        self.root.mkdir()
        self.bin.mkdir()
        for name in ("run", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root)
        shutil.copytree(ROOT / "requirements", self.root / "requirements")
        for name in PROGRAMS:
            if found := shutil.which(name):
                (self.bin / name).symlink_to(found)

    def program(self, path: str, text: str) -> None:
        target = self.root.parent / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755)

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "run"), *arguments],
            env={"PATH": str(self.bin), **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def say_ready(self, environment: str, lock: str) -> None:
        """Let an environment pass for finished."""
        script = f"{{ sed '/^\\[tool\\.pytest/,$d' pyproject.toml && cat {lock}; }} | cksum"
        answer = subprocess.run(["sh", "-c", script], cwd=self.root, capture_output=True, text=True, check=True)
        self.program(f"a checkout/{environment}/bin/python", "#!/bin/sh\nexit 0\n")
        (self.root / environment / ".ready").write_text(f"{self.root}\n{answer.stdout}")


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_help_names_every_command(checkout):
    done = checkout.run("help")
    assert done.returncode == 0
    for command in ("demo", "serve", "with-paddle", "test", "check", "bench", "lock"):
        assert f"./run {command}" in done.stdout


def test_an_unknown_command_is_refused(checkout):
    done = checkout.run("dmeo")
    assert (done.returncode, done.stdout) == (1, "")
    assert last_line(done.stderr) == "run: there is no command 'dmeo'"


def test_a_machine_without_python(checkout):
    done = checkout.run("demo", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no Python that Paddle has wheels for was found (3.10 to 3.13): apt-get install" in last_line(done.stderr)


def test_a_python_that_is_too_old_or_too_new(checkout):
    checkout.program("bin/python3", "#!/bin/sh\nexit 1\n")
    assert "no Python that Paddle has wheels for" in last_line(checkout.run("demo").stderr)
    assert "is not a Python 3.10 to 3.13" in last_line(checkout.run("demo", PYTHON="python3").stderr)


def test_a_debian_without_python3_venv(checkout):
    checkout.program("bin/python3", '#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; esac\n')
    done = checkout.run("demo")
    assert (done.returncode, done.stdout) == (1, "")
    assert last_line(done.stderr) == "run: python3-venv is missing: apt-get install python3-venv"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("NewConnectionError: Connection refused", "the package index cannot be reached"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "not the one that was locked"),
        ("ImportError: libgomp.so.1: cannot open shared object file", "apt-get install libgomp1"),
        ("something else", "the lines above say why"),
    ],
)
def test_an_installation_that_fails_ends_in_one_line_that_says_why(checkout, output, line):
    pip = f"#!/bin/sh\ncase \"$*\" in *install*) echo '{output}'; exit 1 ;; esac\n"
    make = f'mkdir -p "$3/bin"; cat > "$3/bin/python" <<"END"\n{pip}END\n/bin/chmod +x "$3/bin/python"'
    checkout.program("bin/python3", f'#!/bin/sh\ncase "$2" in venv) {make} ;; esac\n')
    done = checkout.run("demo")
    assert (done.returncode, done.stdout) == (1, "")
    assert line in last_line(done.stderr)
    assert output in done.stderr
    assert "venv.log" in done.stderr
    assert not (checkout.root / ".venv" / ".ready").exists()


@pytest.mark.parametrize("version", ["", "newest", "3", "gpu-", "3.1.0;id", "../3.1.0"])
def test_what_is_no_version_of_paddle_is_refused(checkout, version):
    done = checkout.run("with-paddle", version, "true")
    assert done.returncode == 1
    assert "is not a version of Paddle" in last_line(done.stderr)


def test_with_paddle_passes_arguments_output_and_exit_code(checkout):
    checkout.say_ready(".envs/paddle-3.1.0", "requirements/paddle-3.1.txt")
    script = 'printf "%s|" "$@"; echo "$VIRTUAL_ENV"; exit 7'
    done = checkout.run("with-paddle", "3.1.0", "sh", "-c", script, "-", "a b", "", "$HOME")
    assert done.stdout == f"a b||$HOME|{checkout.root}/.envs/paddle-3.1.0\n"
    assert (done.returncode, done.stderr) == (7, "")


def test_the_gpu_package_has_an_environment_of_its_own_and_the_constraints_of_its_release(checkout):
    checkout.say_ready(".envs/paddle-gpu-2.6.2", "requirements/paddle-2.6.txt")
    done = checkout.run("with-paddle", "gpu-2.6.2", "sh", "-c", 'echo "$VIRTUAL_ENV"')
    assert done.stdout == f"{checkout.root}/.envs/paddle-gpu-2.6.2\n"


def test_with_paddle_runs_where_it_was_called(checkout):
    checkout.say_ready(".envs/paddle-3.1.0", "requirements/paddle-3.1.txt")
    assert checkout.run("with-paddle", "3.1.0", "sh", "-c", "pwd").stdout.strip() == os.getcwd()  # noqa: PTH109


def test_the_newest_paddle_is_the_locked_one(checkout):
    checkout.program("a checkout/requirements/training.txt", "paddlepaddle==4.5.6 \\\n")
    checkout.say_ready(".envs/paddle-4.5.6", "requirements/training.txt")
    assert checkout.run("with-paddle", "4.5.6", "sh", "-c", "echo here").stdout == "here\n"


def test_changed_requirements_make_an_environment_due(checkout):
    checkout.say_ready(".venv", "requirements/dev.txt")
    assert checkout.run("bench").returncode == 0
    checkout.program("a checkout/requirements/dev.txt", "other\n")
    assert "Preparing .venv" in checkout.run("bench").stderr


def test_the_locks_name_no_host():
    for file in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in file.read_text(), file.name
