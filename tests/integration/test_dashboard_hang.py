"""The hang page in a real browser, of two real ranks that stand still."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.integration.jobs import PROGRAMS, finish, start, until
from tests.integration.test_dashboard import AXE, CHROMIUM, FLAGS, PHONE, Collector, live, watched

pytestmark = [
    pytest.mark.browser,
    pytest.mark.paddle,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH (Debian: apt-get install chromium)"),
]
LAUNCH = ["python", "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir", "log"]


def runs(collector: Collector) -> list[str]:
    with suppress(URLError):  # it says that it starts a moment before it answers
        return [run["run"] for run in collector.get("/api/v1/runs")["runs"]]
    return []


def test_a_hang_appears_and_says_who_waits_for_whom(tmp_path: Path) -> None:
    collector = Collector(tmp_path / "data")
    options = ("--collector", collector.url, "--stall-after", "2")
    command = [*LAUNCH, str(PROGRAMS / "hangs" / "hang.py"), "sleeps"]
    job = start(tmp_path, command, *options, CTX_TRACER_RUN_ID="standing", OMP_NUM_THREADS="1")
    try:
        until(lambda: "standing" in runs(collector))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            with watched(browser, collector.url, color_scheme="dark") as seen:
                page = seen.page
                page.goto("/runs/standing/hang")
                live(page)
                headline = page.get_by_role("heading", level=1)
                expect(headline).to_contain_text("Rank 0 has waited", timeout=90_000)  # by itself, when it is seen
                expect(headline).to_contain_text("for rank 1, which sleeps at hang.py:")
                waits = page.get_by_role("region", name="Who waits for whom")
                expect(waits.get_by_text("Rank 0 waits in all_reduce (SUM) of float32 [3]")).to_be_visible()
                expect(waits.get_by_text("which the others wait for")).to_be_visible()
                ranks = page.get_by_role("region", name="Ranks").locator("tbody tr")
                expect(ranks).to_have_count(2)
                expect(ranks.nth(1)).to_contain_text("sleeps")
                stacks = page.get_by_role("region", name="Stacks")
                expect(stacks.locator("details[open] pre").filter(has_text="<lambda> (hang.py:")).to_be_visible()
                page.screenshot(path=tmp_path / "wide-dark.png", full_page=True)

                page.emulate_media(color_scheme="light")
                page.set_viewport_size(PHONE)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                page.screenshot(path=tmp_path / "narrow-light.png", full_page=True)
                page.evaluate(AXE.read_text())
                found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
                serious = [one["id"] for one in found["violations"] if one["impact"] in ("serious", "critical")]
                assert serious == []

                page.keyboard.press("Escape")
                expect(page).to_have_url(f"{collector.url}/runs/standing")
                expect(headline).to_contain_text("Rank 0 has waited")
                page.get_by_role("link", name="Who waits for whom").click()
                expect(page).to_have_url(f"{collector.url}/runs/standing/hang")
            browser.close()
    finally:
        job.send_signal(signal.SIGTERM)
        for process in finish(tmp_path, job).report["processes"]:
            with suppress(ProcessLookupError):  # Paddle's launcher leaves behind a rank that stands still
                os.kill(process["pid"], signal.SIGKILL)
        collector.kill()
