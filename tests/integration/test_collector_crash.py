"""The ledger: what was acknowledged is there, nothing else is, and after the fault a fresh item flows."""

from __future__ import annotations

import random
import threading
import time

import httpx
import pytest

from ctx_tracer import semconv
from tests.fake_run import FakeRun, send
from tests.integration.collector_process import Collector


class Sender(threading.Thread):
    """One rank that sends a step a request, again and again until it is acknowledged or told to stop."""

    def __init__(self, collector: Collector, rank: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._collector, self._rank, self._stop_sending = collector, rank, stop
        self.attempted: set[int] = set()
        self.acknowledged: set[int] = set()

    def run(self) -> None:
        with httpx.Client(timeout=10) as http:
            self._send(http)

    def _send(self, http: httpx.Client) -> None:
        step = 0
        while not self._stop_sending.is_set():
            self.attempted.add(step)
            try:
                answer = http.post(f"{self._collector.url}/v1/traces", json=self._request(step))
            except httpx.TransportError:
                time.sleep(0.02)
                continue  # the same step again, as an exporter does
            if answer.status_code == 200:
                self.acknowledged.add(step)
                step += 1

    def _request(self, step: int) -> dict[str, object]:
        resource = {
            semconv.PADDLE_RUN_ID: {"stringValue": "ledger"},
            semconv.PADDLE_RANK: {"intValue": self._rank},
            semconv.PROCESS_PID: {"intValue": self._rank},
        }
        span = {
            "traceId": f"{self._rank + 1:016x}{step + 1:016x}",
            "spanId": f"{step + 1:016x}",
            "name": semconv.SPAN_STEP,
            "startTimeUnixNano": str(step + 1),
            "endTimeUnixNano": str(step + 2),
            "attributes": _pairs({semconv.STEP: {"intValue": step}, semconv.REGIONS_CAPTURED: {"intValue": 1}}),
        }
        return {"resourceSpans": [{"resource": {"attributes": _pairs(resource)}, "scopeSpans": [{"spans": [span]}]}]}


def _pairs(values: dict[str, dict[str, object]]) -> list[dict[str, object]]:
    return [{"key": key, "value": value} for key, value in values.items()]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_nothing_acknowledged_is_lost_and_nothing_is_doubled(tmp_path, end):
    with Collector(tmp_path / "data") as collector:
        # A port that is free again at once after a restart, because senders know only one.
        collector.keep_port()
        stop = threading.Event()
        senders = [Sender(collector, rank, stop) for rank in range(4)]
        for sender in senders:
            sender.start()
        for _ in range(3):
            before = sum(len(sender.acknowledged) for sender in senders)
            collector.wait_until(
                lambda before=before: sum(len(s.acknowledged) for s in senders) > before + 40, "acknowledged spans"
            )
            time.sleep(random.uniform(0, 0.1))  # anywhere in a commit
            if end == "kill":
                collector.kill()
            else:
                assert collector.stop() == 0
            collector.start()
        stop.set()
        for sender in senders:
            sender.join(30)
            assert not sender.is_alive()

        collector.wait_until(lambda: collector.metric("detection_lag_spans") == 0, "the end of detection")
        steps = collector.get("/api/v1/runs/ledger/steps", limit=10_000)["steps"]
        stored = {step["step"]: step["ranks"] for step in steps}
        attempted = {step: sum(step in sender.attempted for sender in senders) for step in stored}
        acknowledged = {
            step: sum(step in sender.acknowledged for sender in senders)
            for step in set().union(*(sender.acknowledged for sender in senders))
        }
        lost = {step: count for step, count in acknowledged.items() if stored.get(step, 0) < count}
        unexpected = {step: count for step, count in stored.items() if count > attempted[step]}
        assert (lost, unexpected) == ({}, {})

        # Counted once each, in the store and by detection, whose counters went through the crashes as well.
        run = collector.get("/api/v1/runs/ledger")
        rows = sum(step["regions_captured"] for step in steps)
        assert rows == sum(stored.values())
        assert run["coverage"]["regions_captured"] == rows
        assert run["ranks_seen"] == 4

        send(FakeRun(run="fresh", ranks=1, regions=1, steps=2), collector.exporter())
        collector.wait_for_run("fresh", status="ended")


def test_alerts_survive_a_crash_and_are_not_doubled(tmp_path):
    with Collector(tmp_path / "data") as collector:
        whole = FakeRun(ranks=4, regions=3, steps=30, faults=2, started_ns=1_000_000_000)
        half = FakeRun(ranks=4, regions=3, steps=15, faults=2, end=False, started_ns=1_000_000_000)
        send(half, collector.exporter())
        collector.kill()  # detection may be anywhere
        collector.start()
        send(whole, collector.exporter())
        run = collector.wait_for_run("fake", status="ended")
        alerts = collector.get("/api/v1/alerts")["alerts"]
        assert [(alert["count"], alert["ranks"]) for alert in alerts] == [(2 * 27, [0, 2])] * 2
        assert run["coverage"]["regions_captured"] == 4 * 3 * 30
        collector.kill()  # what was found may not have been written yet; then it is found again
        collector.start()
        assert collector.wait_for_run("fake", status="ended") == run
        assert collector.get("/api/v1/alerts")["alerts"] == alerts


def test_what_was_committed_without_being_judged_is_judged_at_the_next_start(tmp_path):
    """As when the process is killed between a commit and its detection."""
    with Collector(tmp_path / "data") as collector:
        send(FakeRun(ranks=2, regions=2, steps=6, faults=1), collector.exporter())
        collector.wait_for_run("fake", status="ended")
        assert collector.stop() == 0
        for name in ("state.sqlite3", "state.sqlite3-wal", "state.sqlite3-shm"):
            (tmp_path / "data" / name).unlink(missing_ok=True)
        collector.start()
        run = collector.wait_for_run("fake", status="ended")
        assert run["coverage"]["regions_captured"] == 2 * 2 * 6
        assert [alert["count"] for alert in collector.get("/api/v1/alerts")["alerts"]] == [3]
