"""Pictures of the dashboard for the documentation, of a run that a collector holds.

    python dashboards/screenshots.py http://127.0.0.1:4318 RUN [--to docs/screenshots]

writes runs, run and alert (the worst one of the run), each in dark and light. Needs Playwright for Python and a
Chromium on the PATH.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Literal
from urllib.parse import quote
from urllib.request import urlopen

from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
THEMES: tuple[Literal["dark", "light"], ...] = ("dark", "light")
# What a laptop shows; twice the pixels, so that text stays sharp where a page scales the picture.
WIDTH, HEIGHT, SCALE = 1440, 900, 2
# A collector on a busy machine may take a moment for its first answer (milliseconds).
PATIENCE = 30_000


def chromium() -> str:
    """The browser. Raises SystemExit where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise SystemExit("no chromium on the PATH (Debian: apt-get install chromium)")
    return found


def worst_alert(collector: str, run: str) -> str:
    """Fingerprint of the run's worst alert. Raises SystemExit where it has none."""
    with urlopen(f"{collector}/api/v1/alerts?run={quote(run, safe='')}") as answer:  # noqa: S310 - the caller's collector
        alerts = json.load(answer)["alerts"]
    if not alerts:
        raise SystemExit(f"run {run} has no alert to take a picture of")
    return str(alerts[0]["fingerprint"])


def settle(page: Page) -> None:
    """Wait until the page shows what it has."""
    expect(page.get_by_role("banner").get_by_text("Live", exact=True)).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".skeleton")).to_have_count(0, timeout=PATIENCE)
    # The heat map is painted in the frame after its data came.
    page.wait_for_timeout(500)


def take(collector: str, run: str, folder: Path) -> list[Path]:
    """Write the pictures; their paths."""
    pages = {
        "runs": "/",
        "run": f"/runs/{quote(run, safe='')}",
        "alert": f"/alerts/{worst_alert(collector, run)}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for theme in THEMES:
            context = browser.new_context(
                base_url=collector,
                viewport={"width": WIDTH, "height": HEIGHT},
                device_scale_factor=SCALE,
                color_scheme=theme,
            )
            page = context.new_page()
            for name, path in pages.items():
                page.goto(path)
                settle(page)
                written.append(folder / f"{name}-{theme}.png")
                page.screenshot(path=written[-1])
            context.close()
        browser.close()
    return written


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write docs/screenshots from a run that a collector holds.")
    parser.add_argument("collector", help="URL of the collector")
    parser.add_argument("run", help="id of a run with at least one alert")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "screenshots", help="folder to write to")
    given = parser.parse_args()
    for path in take(given.collector.rstrip("/"), given.run, given.to):
        print(path)


if __name__ == "__main__":
    main()
