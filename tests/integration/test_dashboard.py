"""The dashboard in a real browser, on a real collector with spans from the stock exporter."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "dashboards" / "web" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# How long a page may take to show something on a machine that also does other things (milliseconds).
PATIENCE = 30_000
DESKTOP: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 360, "height": 740}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("dashboard"),  # one collector and one browser for all of them
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH (Debian: apt-get install chromium)"),
]
expect.set_options(timeout=PATIENCE)


class Collector:
    """`ctx-tracer serve` in a process of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.url = self._start(0)

    def _start(self, port: int) -> str:
        log = self.data.with_suffix(".log")
        command = [
            str(Path(sys.executable).parent / "ctx-tracer"),
            "serve",
            "--port",
            str(port),
            "--data-dir",
            str(self.data),
        ]
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE / 1000
        while time.monotonic() < until and self._process.poll() is None:
            for line in log.read_text().splitlines():
                if '"collector started"' in line:
                    return str(json.loads(line)["url"])
            time.sleep(0.05)
        pytest.fail(f"the collector did not start: {log.read_text()}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def start_again(self) -> None:
        assert self._start(int(self.url.rsplit(":", 1)[1])) == self.url

    def send(self, run: str, **options: object) -> None:
        """A made-up run: options as of tests/fake_run.py, True for one without a value."""
        command = [sys.executable, str(ROOT / "tests" / "fake_run.py"), "--collector", self.url, "--run", run]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def get(self, path: str) -> Any:
        with urlopen(self.url + path) as answer:
            return json.load(answer)

    def alert(self, run: str) -> str:
        """Path of the page of the worst alert of a run."""
        found = self.get(f"/api/v1/alerts?run={quote(run, safe='')}")["alerts"]
        return f"/alerts/{found[0]['fingerprint']}"


@dataclass
class Seen:
    """What a page did beside showing something."""

    page: Page
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """With three runs: a healthy one, one with two faults on every second rank, and one that died."""
    one = Collector(tmp_path_factory.mktemp("collector") / "data")
    one.send("healthy", steps=12)
    one.send("nightly-7", ranks=4, regions=8, steps=20, faults=2, dropped=3, no_end=True)
    one.send("crashed", steps=8, faults=1, fail=True)
    yield one
    one.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture
def seen(browser: Browser, collector: Collector) -> Iterator[Seen]:
    """A page whose console stays clean and which asks nobody but the collector; checked at the end of the test."""
    with watched(browser, collector.url) as found:
        yield found


@contextmanager
def watched(browser: Browser, url: str, **options: Any) -> Iterator[Seen]:
    """A page that fails the test where it complained, opened a dialog or asked anybody but the collector."""
    with browser.new_context(base_url=url, **{"viewport": DESKTOP, **options}) as context:
        context.set_default_timeout(PATIENCE)
        found = Seen(context.new_page())
        page = found.page
        page.on("console", lambda message: found.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: found.errors.append(str(error)))
        page.on("dialog", lambda dialog: (found.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: None if request.url.startswith(url) else found.outside.append(request.url))
        yield found
    assert found.errors == []
    assert found.outside == []


def live(page: Page) -> None:
    expect(page.get_by_role("banner").get_by_text("Live", exact=True)).to_be_visible()


def background(page: Page) -> list[int]:
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]


def test_from_the_runs_to_an_alert(seen: Seen, collector: Collector) -> None:
    page = seen.page
    page.goto("/")
    live(page)
    expect(page.locator("tbody tr[data-index]")).to_have_count(3)
    page.get_by_role("link", name="nightly-7").click()

    expect(page).to_have_url(f"{collector.url}/runs/nightly-7")
    expect(page.get_by_role("heading", level=1)).to_contain_text("blocks.0.adapter.weight")
    expect(page.get_by_text("ring overwritten")).to_be_visible()
    expect(page.get_by_text("4 ranks, 8 regions")).to_be_visible()
    alerts = page.get_by_role("region", name="Alerts")
    expect(alerts.locator("tbody tr[data-index]")).to_have_count(2)
    alerts.get_by_role("link").first.click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("was served as a copy with stop_gradient=True")
    compared = page.get_by_role("region", name="Captured, produced, served")
    row = compared.get_by_role("row").filter(has_text="stop_gradient")
    expect(row.locator("th")).to_contain_text("(differs, the rule fired on it)")
    expect(row.locator("mark")).to_have_text(["true"])
    expect(compared.get_by_role("row").filter(has_text="dtype").locator("mark")).to_have_count(0)
    expect(compared.get_by_role("row").filter(has_text="name").get_by_text("not observed")).to_be_visible()
    expect(page.get_by_text("model.py:30")).to_be_visible()
    expect(page.get_by_role("heading", name="What to do")).to_be_visible()

    page.get_by_role("link", name="Next alert").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("blocks.1.adapter.weight")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_contain_text("blocks.0.adapter.weight")
    page.get_by_role("link", name="CT104").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Parameter served as a stranger in replay")


def test_every_url_can_be_opened_at_once(seen: Seen, collector: Collector) -> None:
    pages = {
        "/runs/healthy": "Healthy",
        collector.alert("crashed"): "was served as a copy",
        "/runs/crashed/regions/blocks.0?rank=1": "blocks.0",
        "/rules": "Rules",
        "/rules/CT105": "Placements changed between forward and replay",
    }
    for path, headline in pages.items():
        response = seen.page.goto(path)
        assert response is not None
        assert response.status == 200
        expect(seen.page.get_by_role("heading", level=1)).to_contain_text(headline)


def test_a_dead_rank_is_named_with_its_signal(seen: Seen) -> None:
    seen.page.goto("/runs/crashed")
    first = seen.page.get_by_role("region", name="Ranks").locator("tbody tr[data-index]").first
    expect(first).to_contain_text("SIGSEGV")
    expect(first).to_contain_text("failed")


def test_the_spans_of_a_region_show_their_slots(seen: Seen) -> None:
    page = seen.page
    page.goto("/runs/healthy/regions/blocks.1")
    page.get_by_role("button", name="replay").first.click()
    expect(page.get_by_role("cell", name="blocks.1.adapter.weight", exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name="16x16", exact=True)).to_be_visible()


def test_what_happens_meanwhile_appears_by_itself(seen: Seen, collector: Collector) -> None:
    page = seen.page
    collector.send("growing", steps=5, no_end=True)
    page.goto("/runs/growing")
    live(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("Healthy, step 4, 2 ranks.")
    collector.send("growing", steps=9, faults=1, no_end=True)
    expect(page.get_by_role("region", name="Alerts").get_by_text("CT104")).to_be_visible()
    expect(page.get_by_role("region", name="Rank by region").get_by_text("error")).to_be_visible()


def test_it_comes_back_after_the_collector_did(browser: Browser, tmp_path: Path) -> None:
    collector = Collector(tmp_path / "data")
    try:
        collector.send("before", steps=4, no_end=True)
        context = browser.new_context(base_url=collector.url)
        page = context.new_page()
        page.goto("/")
        live(page)
        collector.kill()
        expect(page.get_by_role("banner").get_by_text("Offline", exact=True)).to_be_visible()
        expect(page.get_by_role("link", name="before")).to_be_visible()
        collector.start_again()
        collector.send("after", steps=4, no_end=True)
        live(page)
        expect(page.get_by_role("link", name="after")).to_be_visible()
        context.close()
    finally:
        collector.kill()


def test_everything_by_keyboard(seen: Seen, collector: Collector) -> None:
    page = seen.page
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()

    expect(page.get_by_role("link", name="nightly-7")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("nightly-7")
    expect(page.locator("tbody tr[data-index]")).to_have_count(1)
    expect(page).to_have_url(f"{collector.url}/?q=nightly-7")
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="healthy")).to_be_visible()
    page.keyboard.type("nightly-7")
    expect(page.locator("tbody tr[data-index]")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{collector.url}/runs/{collector.get('/api/v1/runs')['runs'][0]['run']}")

    page.goto("/runs/nightly-7")
    heat = page.get_by_role("application", name="Heat map of ranks by regions")
    heat.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(heat.locator("[aria-live]")).to_have_text("Rank 1, blocks.1: match")
    page.keyboard.press("n")
    expect(heat.locator("[aria-live]")).to_have_text(
        "Rank 2, blocks.0: error. Parameter served as a stranger in replay"
    )
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("blocks.0.adapter.weight")

    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{collector.url}/runs/nightly-7")


def test_a_cell_that_matches_leads_to_its_spans(seen: Seen, collector: Collector) -> None:
    page = seen.page
    page.goto("/runs/nightly-7")
    page.get_by_role("application").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{collector.url}/runs/nightly-7/regions/blocks.7?rank=0")
    expect(page.get_by_role("region", name="Captures and replays").locator("tbody tr").first).to_be_visible()


def test_the_map_paints_the_worst_and_says_it_as_a_table(seen: Seen) -> None:
    page = seen.page
    page.goto("/runs/nightly-7")
    canvas = page.locator(".map canvas")
    expect(canvas).to_be_visible()
    page.wait_for_function(
        """() => {
            const canvas = document.querySelector('.map canvas')
            const probe = document.body.appendChild(document.createElement('i'))
            probe.style.color = 'var(--cell-error)'
            const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number)
            probe.remove()
            const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data
            for (let i = 0; i < pixels.length; i += 4)
                if (wanted.every((value, j) => Math.abs(pixels[i + j] - value) < 3)) return true
            return false
        }"""
    )
    page.get_by_text("As a table", exact=True).click()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="blocks.0", exact=True))
    expect(row).to_contain_text("error")
    expect(row).to_contain_text("0, 2")


def test_the_theme_is_the_systems_until_one_is_chosen(browser: Browser, collector: Collector) -> None:
    with watched(browser, collector.url, color_scheme="dark") as seen:
        page = seen.page
        page.goto("/")
        assert max(background(page)) < 40
        page.get_by_role("button", name="Light theme").click()
        assert min(background(page)) > 220
        page.reload()
        expect(page.get_by_role("button", name="Dark theme")).to_be_visible()
        assert min(background(page)) > 220
        page.keyboard.press("t")
        expect(page.get_by_role("button", name="Light theme")).to_be_visible()
        assert page.evaluate("localStorage.length") == 0


def test_what_is_not_there_is_said(browser: Browser, collector: Collector) -> None:
    context = browser.new_context(base_url=collector.url)
    page = context.new_page()
    response = page.goto("/nowhere")
    assert response is not None
    assert response.status == 404
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
    page.goto("/runs/none")
    expect(page.get_by_role("alert")).to_contain_text("there is no run 'none'")
    expect(page.get_by_role("alert")).to_contain_text("unknown_run")
    context.close()


def test_the_first_page_of_an_empty_collector_says_what_to_type(browser: Browser, tmp_path: Path) -> None:
    collector = Collector(tmp_path / "data")
    try:
        with watched(browser, collector.url) as seen:
            seen.page.goto("/")
            expect(seen.page.get_by_role("heading", level=1)).to_have_text("No run yet")
            expect(seen.page.get_by_text(f"ctx-tracer run --collector {collector.url} --")).to_be_visible()
            collector.send("first", steps=3, no_end=True)
            expect(seen.page.get_by_role("link", name="first")).to_be_visible()
    finally:
        collector.kill()


def test_a_hostile_name_is_text(seen: Seen, collector: Collector) -> None:
    page = seen.page
    name = "<img src=x onerror=alert(1)>/\u202egnp.exe\u0007 مرحبا" + "x" * 150
    collector.send(name, steps=4, faults=1, no_end=True)
    page.goto("/")
    link = page.get_by_role("link", name="<img src=x")
    expect(link).to_be_visible()
    assert "\u202e" not in link.inner_text()
    link.click()
    expect(page.get_by_role("region", name="Alerts").get_by_text("CT104")).to_be_visible()
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_nothing_is_wider_than_the_page(browser: Browser, collector: Collector, viewport: ViewportSize) -> None:
    with watched(browser, collector.url, viewport=viewport) as seen:
        for path in ("/", "/runs/nightly-7", collector.alert("nightly-7"), "/runs/healthy/regions/blocks.0", "/rules"):
            seen.page.goto(path)
            expect(seen.page.get_by_role("heading", level=1)).to_be_visible()
            expect(seen.page.locator(".skeleton")).to_have_count(0)
            assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_finds_nothing_serious(browser: Browser, collector: Collector, theme: str) -> None:
    if not AXE.is_file():
        pytest.fail("axe-core is not installed: run `npm ci` in dashboards/web")
    axe = AXE.read_text()
    with watched(browser, collector.url, color_scheme=theme) as seen:
        page = seen.page
        for path in (
            "/",
            "/runs/nightly-7",
            collector.alert("nightly-7"),
            "/rules/CT104",
            "/runs/healthy/regions/blocks.0",
        ):
            page.goto(path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator(".skeleton")).to_have_count(0)
            # Evaluated, not inserted as a script: the collector's policy stays as strict as it is.
            page.evaluate(axe)
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            serious = [
                (path, violation["id"], [node["html"][:200] for node in violation["nodes"]])
                for violation in found["violations"]
                if violation["impact"] in ("serious", "critical")
            ]
            assert serious == []
            assert found["passes"]
