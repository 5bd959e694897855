"""`ctx-tracer.toml` around a whole run: what is told, sent, reported and counted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.jobs import CTX_TRACER, FAKE_RANK, Traced, run, sink

ENTRY = '[[suppress]]\nrule = "{rule}"\nregion = "layers.*"\nreason = "ticket 4711"\nexpires = {expires}\n'
FAULTY = [*FAKE_RANK, "steps=1", "finding=CT105", "clean"]


def config(rule: str = "CT105", expires: str = "9999-12-31") -> str:
    return ENTRY.format(rule=rule, expires=expires)


def events(receiver_spans: list[dict]) -> list[str]:
    return [event["name"] for span in receiver_spans for event in span["events"]]


def suppressed_rules(traced: Traced) -> list[str]:
    return [finding["rule"] for finding in traced.report["suppressed"]]


def test_a_suppressed_finding_is_kept_and_does_not_count(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    (tmp_path / "ctx-tracer.toml").write_text(config())
    with sink(tmp_path) as receiver:
        traced = run(tmp_path, FAULTY, "--collector", receiver.url, "--fail-on", "warning")
        spans = receiver.spans
    assert traced.code == 0
    assert (traced.report["verdict"], traced.rules, suppressed_rules(traced)) == ("match", [], ["CT105"])
    assert "error CT105" not in traced.err
    assert "Suppressed until 9999-12-31: CT105 placements-changed in layers.3" in traced.err
    assert "ticket 4711" in traced.err
    assert "train step" in [span["name"] for span in spans]
    assert "ctx.finding" not in events(spans)
    assert "mismatch" not in [span["attributes"].get("ctx.region.verdict") for span in spans]


def test_the_same_run_without_it_does(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    (tmp_path / "ctx-tracer.toml").write_text(config("CT106"))
    with sink(tmp_path) as receiver:
        traced = run(tmp_path, FAULTY, "--collector", receiver.url, "--fail-on", "warning")
        spans = receiver.spans
    assert traced.code == 3
    assert (traced.rules, suppressed_rules(traced)) == (["CT105"], [])
    assert "ctx.finding" in events(spans)


def test_a_death_can_be_suppressed(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(config("CT113"))
    command = [*FAKE_RANK, "steps=1", "open=replay", "signal=SEGV"]
    traced = run(tmp_path, command, "--config", "other.toml")
    assert traced.code == 139, "the job's own end stays"
    assert (traced.rules, suppressed_rules(traced)) == ([], ["CT113"])
    assert "error CT113" not in traced.err


def test_an_expired_entry_is_told_and_the_finding_counts_again(tmp_path: Path) -> None:
    (tmp_path / "ctx-tracer.toml").write_text(config(expires="2020-01-31"))
    traced = run(tmp_path, FAULTY, "--fail-on", "error")
    assert traced.code == 3
    first = traced.err.splitlines()[0]
    assert first == (
        "ctx-tracer: the suppression of CT105 in layers.* expired on 2020-01-31 and no longer holds (ticket 4711)"
    )
    assert traced.rules == ["CT105"]
    assert [entry["expires"] for entry in traced.report["expired_suppressions"]] == ["2020-01-31"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (config().replace("reason", "because"), "ctx-tracer.toml: [[suppress]] entry 1 (rule = 'CT105'"),
        (config("CT999"), "there is no rule CT999"),
        (config(expires='"soon"'), "expires is not a date"),
        ("[[suppress]]\nrule =", "ctx-tracer.toml: "),
        ("\xff", "ctx-tracer.toml: "),
    ],
)
def test_a_file_that_cannot_be_used_stops_everything_before_the_job(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "ctx-tracer.toml").write_bytes(text.encode("latin-1"))
    traced = run(tmp_path, [*FAKE_RANK, "print=started"])
    assert (traced.code, traced.out) == (2, "")
    assert told in traced.err
    assert len(traced.err.splitlines()) == 1


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    traced = run(tmp_path, [*FAKE_RANK, "print=started"], "--config", "none.toml")
    assert (traced.code, traced.out) == (2, "")
    assert traced.err == "ctx-tracer: cannot read none.toml: No such file or directory\n"


def test_a_daemon_without_run_goes_on_when_the_file_cannot_be_used(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    first = run(tmp_path, FAULTY, "--record-dir", str(records))
    assert first.rules == ["CT105"]
    (tmp_path / "ctx-tracer.toml").write_text(config("CT999"))
    command = [CTX_TRACER[0], "-m", "ctx_tracer.daemon", "--record-dir", str(records), "--report", "late.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "nothing is suppressed: ctx-tracer.toml" in done.stderr
    assert [f["rule"] for f in json.loads((tmp_path / "late.json").read_text())["findings"]] == ["CT105"]
