"""A real training run on two ranks with a real fault, and what ctx-tracer says about it. `./run demo` starts it."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from processes import (
    adopt_orphans,
    claim,
    end_orphans,
    fetch,
    free_port,
    last_line,
    port_is_free,
    running,
    wait_until_ready,
)
from scenarios import RANKS, SCENARIOS, Scenario

try:
    from conclusion import conclude
    from progress import follow
    from screen import Screen
except ModuleNotFoundError as error:
    sys.exit(f"demo: {error.name} is not installed in {sys.prefix}; start the demo with ./run demo")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BIN = Path(sys.executable).parent  # of the environment that runs this
# Where OpenTelemetry's exporters look for a collector.
USUAL_PORT = 4318
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoError(Exception):
    """Something that the demo needs is not there; the text is the one line that says what."""


def main() -> int:
    """Run one scenario; 0 when it showed what it is meant to show."""
    parser = argparse.ArgumentParser(
        prog="./run demo",
        description="Trains a small model on two ranks, for real, and shows what ctx-tracer says.",
        epilog=described_scenarios(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = list(SCENARIOS)
    parser.add_argument("--scenario", choices=names, default=names[0], metavar="NAME", help="one of the four below")
    parser.add_argument("--exit", action="store_true", help="end after the verdict, do not keep the page open")
    parser.add_argument("--json", action="store_true", help="print the report, and nothing else, on stdout")
    parser.add_argument("--port", type=int, metavar="N", help=f"the collector's port ({USUAL_PORT}, or a free one)")
    options = parser.parse_args()
    screen = Screen(sys.stderr if options.json else sys.stdout)
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, signal.default_int_handler)
    try:
        return demonstrate(SCENARIOS[options.scenario], options, screen)
    except DemoError as error:
        screen.say(f"demo: {error}", style="red")
        return 1
    except KeyboardInterrupt:
        screen.say()
        screen.say("Stopped.")
        return 130


def described_scenarios() -> str:
    """A line for each, for `--help`."""
    lines = [f"  {name:<12}  {scenario.summary}" for name, scenario in SCENARIOS.items()]
    return "\n".join([f"scenarios ({next(iter(SCENARIOS))} unless given):", *lines])


def demonstrate(scenario: Scenario, options: argparse.Namespace, screen: Screen) -> int:
    """Collector, training, verdict, page. Raises DemoError when one of them cannot be had."""
    check_environment()
    port = choose_port(options.port)
    url, run = f"http://127.0.0.1:{port}", f"demo-{scenario.name}-{time.strftime('%H%M%S')}"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ctx-tracer-demo-")))
        adopt_orphans()
        stack.callback(end_orphans)
        collector_log = stack.enter_context((folder / "collector.log").open("wb"))
        collector = stack.enter_context(running(serve_command(port, folder), collector_log))
        screen.say(f"{scenario.name}: {scenario.story}", style="bold")
        screen.say("Two ranks train." if options.exit else f"Two ranks train, the page is at {url}/runs/{run}")
        screen.say()
        training_log = stack.enter_context((folder / "training.log").open("wb"))
        # Two ranks on a small machine; Paddle's launcher leaves temporary files behind when it is ended.
        settings = {"CTX_TRACER_RUN_ID": run, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
        training = stack.enter_context(running(train_command(scenario, url, folder), training_log, settings))
        stack.callback(ignore_signals)  # runs first on the way out: a second Ctrl-C must not leave a program behind
        problem = wait_until_ready(url, collector, folder / "collector.log")
        if problem:
            raise DemoError(problem)
        follow(training, folder, screen)
        report = read_report(folder)
        wrong = scenario.missing(report) + not_shown(scenario, url, run)
        if options.json:
            print(json.dumps(report, indent=2), flush=True)
        conclude(report, scenario.expected, screen)
        for line in wrong:
            screen.say(f"not as it should be: {line}", style="red")
        screen.say()
        if options.exit:
            screen.say(f"To see the page of such a run: ./run demo --scenario {scenario.name}")
        else:
            screen.say(f"{url}/runs/{run}")
            screen.say("The page stays open until Ctrl-C.")
            with contextlib.suppress(KeyboardInterrupt):
                collector.wait()
                raise DemoError(
                    f"the collector ended with {collector.returncode}: {last_line(folder / 'collector.log')}"
                )
    return 1 if wrong else 0


def ignore_signals() -> None:
    """From here on the demo ends by itself."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def check_environment() -> None:
    """Raises DemoError in an environment that `./run` has not made."""
    for module, what in (("paddle", "Paddle"), ("fastapi", "the collector")):
        if importlib.util.find_spec(module) is None:
            raise DemoError(f"{what} is not installed in {sys.prefix}; start the demo with ./run demo")


def choose_port(wanted: int | None) -> int:
    """The port asked for, else the usual one, else a free one. Raises DemoError when the one asked for is taken."""
    if wanted is not None and not port_is_free(wanted):
        raise DemoError(f"port {wanted} is taken; leave --port out and a free one is used")
    if wanted is not None:
        return wanted
    return USUAL_PORT if claim(USUAL_PORT) and port_is_free(USUAL_PORT) else free_port()


def serve_command(port: int, folder: Path) -> list[str]:
    """The collector with the embedded store, in a folder that goes when the demo ends."""
    return [str(BIN / "ctx-tracer"), "serve", "--port", str(port), "--data-dir", str(folder / "store")]


def train_command(scenario: Scenario, url: str, folder: Path) -> list[str]:
    """`ctx-tracer run` around Paddle's launcher, in the environment that has the scenario's Paddle."""
    logs, report = str(folder / "ranks"), str(folder / "report.json")
    if scenario.paddle:
        environment, python, tracer = [str(ROOT / "run"), "with-paddle", scenario.paddle], "python", "ctx-tracer"
    else:
        environment, python, tracer = [], sys.executable, str(BIN / "ctx-tracer")
    # Not `--backend gloo`: with it an older launcher takes over, which ends twelve seconds after its ranks have died.
    launch = [python, "-m", "paddle.distributed.launch", "--host", "127.0.0.1", "--nproc_per_node", "2"]
    job = [*launch, "--log_dir", logs, str(HERE / scenario.script), *scenario.arguments]
    traced = [tracer, "run", "--collector", url, "--report", report, "--record-dir", str(folder / "records"), "--"]
    return [*environment, *traced, *job]


def read_report(folder: Path) -> dict[str, Any]:
    """The report of `ctx-tracer run`. Raises DemoError when there is none."""
    try:
        report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    except FileNotFoundError:
        kept = shutil.copy(folder / "training.log", Path(tempfile.gettempdir()) / "ctx-tracer-demo.log")
        said = last_line(folder / "training.log")
        raise DemoError(f"training ended without a report: {said} (all of it: {kept})") from None
    return report


def not_shown(scenario: Scenario, url: str, run: str) -> list[str]:
    """What the page cannot show because the collector does not know it."""
    try:
        page = fetch(f"{url}/runs/{run}")
        alerts = json.loads(fetch(f"{url}/api/v1/alerts?run={run}"))["alerts"]
    except OSError as error:
        return [f"the collector does not answer: {error}"]
    shown = {(alert["rule"], rank) for alert in alerts for rank in alert["ranks"]}
    wanted = [(rule, rank) for rule in scenario.expected for rank in RANKS]
    wrong = [f"the page does not show {rule} on rank {rank}" for rule, rank in wanted if (rule, rank) not in shown]
    return wrong if b"<html" in page.lower() else [*wrong, "the dashboard is not built; start the demo with ./run demo"]


if __name__ == "__main__":
    sys.exit(main())
