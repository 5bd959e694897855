"""Who is let in, and what answers allow a browser."""

from __future__ import annotations

import httpx
import pytest
from ctx_collector.counters import METRICS, Counters
from ctx_collector.errors import StartupError
from ctx_collector.security.gate import COOKIE, Gate
from ctx_collector.settings import Settings
from pydantic import ValidationError
from starlette.responses import PlainTextResponse

TOKEN = "s3cret-token"


def client(base: str = "http://127.0.0.1:4318", **settings) -> httpx.AsyncClient:
    gate = Gate(PlainTextResponse("in"), Settings(**settings))
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url=base)


async def _get(path: str, base: str = "http://127.0.0.1:4318", headers=None, **settings) -> httpx.Response:
    async with client(base, **settings) as http:
        return await http.get(path, headers=headers)


def get(path: str, **given) -> httpx.Response:
    import asyncio

    return asyncio.run(_get(path, **given))


@pytest.mark.parametrize("host", ["127.0.0.1:4318", "localhost:9", "[::1]:4318", "localhost", "LOCALHOST", "[::1]"])
def test_this_machine_is_let_in(host):
    assert get("/api/v1/runs", headers={"host": host}).text == "in"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:4318",
        "127.0.0.1.evil.example",
        "",
        "169.254.169.254",
        "[::2]:4318",
        "127.0.0.1:4318, evil.example",
        "evil.example, 127.0.0.1",
        "127.0.0.1:4318:evil.example",
        "127.0.0.1:",
        "127.0.0.1:80 ",
        "[::1]x",
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/runs", "/v1/traces", "/", "/metrics"])
def test_a_name_pointed_at_this_machine_is_not(host, path):
    refused = get(path, headers={"host": host})
    assert refused.status_code == 421
    assert refused.json()["error"]["code"] == "wrong_host"


def test_with_a_token_any_name_will_do():
    bearer = {"host": "collector.example", "authorization": f"Bearer {TOKEN}"}
    assert get("/api/v1/runs", headers=bearer, token=TOKEN).text == "in"


@pytest.mark.parametrize("path", ["/api/v1/runs", "/v1/traces", "/metrics"])
@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Bearer wrong-token", f"Basic {TOKEN}", TOKEN, "Bearer \xe9"]
)
def test_without_the_token_nothing_is_told(path, authorization):
    refused = get(path, headers={"authorization": authorization.encode("latin-1")}, token=TOKEN)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json()["error"]["remedy"]


@pytest.mark.parametrize("path", ["/api/v1/runs", "/v1/traces", "/metrics"])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_the_token_everything_is(path, scheme):
    assert get(path, headers={"authorization": f"{scheme} {TOKEN}"}, token=TOKEN).text == "in"


def test_the_ingest_token_is_for_ingest_only():
    both = {"token": TOKEN, "ingest_token": "ingest-only", "headers": {"authorization": "Bearer ingest-only"}}
    assert get("/v1/traces", **both).text == "in"
    assert get("/api/v1/runs", **both).status_code == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/", "/runs/x", "/assets/a.js"])
def test_health_and_the_page_itself_need_no_token(path):
    assert get(path, token=TOKEN).text == "in"


def test_the_token_in_an_address_becomes_a_cookie_and_leaves_it():
    answer = get(f"/runs/a%2Fb?x=1&token={TOKEN}&y=", token=TOKEN)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/runs/a%2Fb?x=1&y="
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert answer.headers["referrer-policy"] == "no-referrer"
    value = cookie.split(";")[0]
    assert get("/api/v1/runs", headers={"cookie": value}, token=TOKEN).text == "in"
    assert get("/v1/traces", headers={"cookie": value}, token=TOKEN).status_code == 401
    assert get("/api/v1/runs", headers={"cookie": value}, token="another-token").status_code == 401


def test_a_wrong_token_in_an_address_is_refused():
    assert get("/?token=wrong-token", token=TOKEN).status_code == 401
    assert get("/api/v1/runs", headers={"cookie": f"{COOKIE}=x"}, token=TOKEN).status_code == 401


def test_a_token_in_the_address_of_the_interface_is_not_taken():
    assert get(f"/api/v1/runs?token={TOKEN}", token=TOKEN).status_code == 401


def test_a_sign_in_never_leads_to_another_host():
    assert (
        get(f"http://127.0.0.1:4318//evil.example/?token={TOKEN}", token=TOKEN).headers["location"] == "/evil.example/"
    )


@pytest.mark.parametrize("path", ["/", "/api/v1/runs", "/nowhere"])
def test_every_answer_tells_the_browser_what_is_allowed(path):
    for answer in (get(path), get(path, headers={"host": "evil"}), get(path, token=TOKEN)):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"])
def test_loopback_needs_no_token(host):
    Settings(host=host).check_exposure()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com"])
def test_any_other_address_does(host):
    with pytest.raises(StartupError) as refused:
        Settings(host=host).check_exposure()
    assert "CTX_COLLECTOR_TOKEN" in refused.value.remedy
    Settings(host=host, token=TOKEN).check_exposure()


def test_an_ingest_token_alone_is_refused():
    with pytest.raises(StartupError, match="protects nothing"):
        Settings(ingest_token=TOKEN).check_exposure()


def test_settings_come_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("CTX_COLLECTOR_PORT", "9999")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings().port == 9999
    assert Settings(port=1).port == 1
    assert Settings().data_dir == tmp_path / "ctx-tracer"
    for wrong in ({"token": "short"}, {"retention_days": 0}, {"port": 70_000}, {"log_level": "loud"}):
        with pytest.raises(ValidationError):
            Settings(**wrong)
    assert TOKEN not in repr(Settings(token=TOKEN))


def test_counters_are_what_prometheus_reads():
    counters = Counters()
    counters.add("spans_stored_total", 1_234_567)
    counters.add("spans_stored_total", 1)
    counters.add("spans_rejected_total", 2, label="bad_id")
    counters.gauge(lambda: [("detection_lag_seconds", "", 0.5)])
    text = counters.render()
    assert "ctx_collector_spans_stored_total 1234568\n" in text
    assert 'ctx_collector_spans_rejected_total{reason="bad_id"} 2\n' in text
    assert "ctx_collector_detection_lag_seconds 0.5\n" in text
    for name in METRICS:
        assert f"# TYPE ctx_collector_{name} " in text
    with pytest.raises(KeyError):
        counters.add("invented_total")
