import pytest

from ctx_tracer.daemon.otlp import LOGS, METRICS, TRACES, targets_from

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


@pytest.mark.parametrize(
    ("collector", "environment", "url"),
    [
        (None, {}, None),
        ("http://a:4318", {}, "http://a:4318/v1/traces"),
        ("http://a:4318/", {}, "http://a:4318/v1/traces"),
        ("https://a/base", {}, "https://a/base/v1/traces"),
        ("http://a:4318/v1/traces", {}, "http://a:4318/v1/traces"),
        ("http://a:4318", {ENDPOINT: "http://b", TRACES_ENDPOINT: "http://c"}, "http://a:4318/v1/traces"),
        (None, {ENDPOINT: "http://b:1/x/"}, "http://b:1/x/v1/traces"),
        (None, {ENDPOINT: "http://b", TRACES_ENDPOINT: "http://c/exactly/this"}, "http://c/exactly/this"),
        ("http://a:4318", {"OTEL_SDK_DISABLED": " True "}, None),
        (None, {ENDPOINT: ""}, None),
    ],
)
def test_where_spans_go(collector: str | None, environment: dict[str, str], url: str | None) -> None:
    target = targets_from(collector, environment).get(TRACES)
    assert (target.url if target else None) == url


@pytest.mark.parametrize(
    ("collector", "environment", "urls"),
    [
        ("http://a:4318/v1/traces", {}, ("http://a:4318/v1/metrics", "http://a:4318/v1/logs")),
        (None, {ENDPOINT: "http://b/x"}, ("http://b/x/v1/metrics", "http://b/x/v1/logs")),
        (
            None,
            {ENDPOINT: "http://b", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://c/l"},
            ("http://b/v1/metrics", "http://c/l"),
        ),
        (None, {TRACES_ENDPOINT: "http://c"}, (None, None)),  # whoever takes traces only is sent nothing else
        (None, {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://c/l"}, (None, None)),
    ],
)
def test_where_progress_and_logs_go(
    collector: str | None, environment: dict[str, str], urls: tuple[str | None, str | None]
) -> None:
    targets = targets_from(collector, environment)
    assert tuple(targets[signal].url if signal in targets else None for signal in (METRICS, LOGS)) == urls


@pytest.mark.parametrize("address", ["a:4318", "ftp://a", "http://", "/v1/traces", "127.0.0.1"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match="is not an http:// or https:// address"):
        targets_from(address, {})


def test_another_protocol_is_told_and_a_named_collector_is_not_subject_to_it() -> None:
    environment = {ENDPOINT: "http://b:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(ValueError, match="--collector"):
        targets_from(None, environment)
    assert targets_from("http://a", environment)


def test_settings_of_the_signal_win() -> None:
    targets = targets_from(
        "http://a",
        {
            "CTX_TRACER_TOKEN": "t",
            "OTEL_EXPORTER_OTLP_HEADERS": "a=1,b=2",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=3",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "5",
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "2.5",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "ca.pem",
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": "key.pem",
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "own.pem",
        },
    )
    target = targets[TRACES]
    assert target.headers == {"authorization": "Bearer t", "a": "1", "b": "3"}
    assert (target.timeout_s, target.compress, target.verify) == (2.5, False, "ca.pem")
    assert target.certificate == ("own.pem", "key.pem")
    assert targets[LOGS].headers == {"authorization": "Bearer t", "a": "1", "b": "2"}
    assert (targets[LOGS].timeout_s, targets[LOGS].compress) == (5, False)


@pytest.mark.parametrize("text", ["", "soon", "-1", "0", "1e9", "nan"])
def test_a_timeout_that_is_none_is_the_usual_one(text: str) -> None:
    target = targets_from("http://a", {"OTEL_EXPORTER_OTLP_TIMEOUT": text})[TRACES]
    assert target.timeout_s == 10
