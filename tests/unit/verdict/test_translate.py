"""What real Paddles print in a failed replay is told as cause and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctx_tracer.model import REENTRANT, Finding, Region
from ctx_tracer.rules import RULES
from ctx_tracer.verdict.translate import TRANSLATIONS, essence, translate

#: Printed by Paddle 2.6.2, 3.1.0 and 3.3.1 on small programs: {"paddle", "case", "exception", "text"}.
TEXTS: list[dict[str, str]] = json.loads((Path(__file__).parent / "paddle_texts.json").read_text(encoding="utf-8"))

EXPECTED = {
    "identity_first_op reentrant first": "returns-its-input",
    "identity_first_op reentrant shipped_first": "returns-its-input",
    "saved_count hook more": "saved-more",
    "saved_count hook fewer": "saved-fewer",
    "twice_retain": "asked-twice",
    "metadata hook rows_fewer": "smaller-in-replay",
    "freed_before_replay reentrant input": "freed-before-replay",
    "freed_before_replay hook input": "freed-before-replay",
    "dp": "ready-before",
    "detach_re": "nothing-to-differentiate",
    "none_re": "outputs-differ",
    "inner_grad": "backward-inside",
    "peer": "peer-gone",
    "peer_silent": "peer-silent",
    "auto_parallel hook with_grad": "lost-placements",
    "replay_raises hook": None,
}
#: On 2.6.2 this case stops in the test program's own code, which iterates over placements that are None.
EXPECTED_2_6 = {"auto_parallel hook with_grad": None}


def failed(text: dict[str, str], **detail: Any) -> Finding:
    told = {"exception": text["exception"], "text": text["text"], "during": "replaying", **detail}
    return Finding("CT113", region=Region("layers.3"), message="as the probe said it", detail=told)


def counts(text: dict[str, str]) -> dict[str, int]:
    return {"captured": 4, "produced": 4 if text["case"] == "twice_retain" else 3}


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: f"{t['paddle']}-{t['case']}")
def test_real_texts(text: dict[str, str]) -> None:
    expected = EXPECTED[text["case"]]
    if text["paddle"].startswith("2.6"):
        expected = EXPECTED_2_6.get(text["case"], expected)
    told = translate(failed(text, slots=counts(text)))
    assert told.detail["translation"] == expected
    assert told.message.startswith("The replay of layers.3 ")
    assert told.message.endswith(".")
    assert "(External)" not in told.message
    assert "\n" not in told.message
    assert told.detail["text"] == text["text"], "the raw text stays"
    assert (told.remedy is not None) == (expected is not None)


def test_each_translation_is_met_by_a_real_text() -> None:
    assert {t.name for t in TRANSLATIONS} == {name for name in EXPECTED.values() if name}


def test_rules_that_are_pointed_to_exist() -> None:
    assert {t.see for t in TRANSLATIONS if t.see} <= set(RULES)


def test_the_py_layer_is_named_where_paddle_names_it() -> None:
    new, old = (
        translate(failed(t))
        for version in ("3.3.1", "3.1.0")
        for t in TEXTS
        if (t["paddle"], t["case"]) == (version, "identity_first_op reentrant shipped_first")
    )
    assert "because the PyLayer c_identity_eager handed its input straight back" in new.message
    assert "because a PyLayer handed its input straight back" in old.message
    assert new.detail["see"] == "CT116"


def test_the_parameter_is_named() -> None:
    text = next(t for t in TEXTS if t["case"] == "dp")
    assert "the gradient of linear_0.b_0 is ready" in translate(failed(text)).message


def test_a_consequence_of_another_ranks_end_is_a_warning() -> None:
    told = translate(failed(next(t for t in TEXTS if t["case"] == "peer")))
    assert told.to_dict()["severity"] == "warning"


def test_an_unknown_text_keeps_its_own_words() -> None:
    told = translate(failed({"exception": "KeyError", "text": "'weight'"}))
    assert told.message == "The replay of layers.3 raised KeyError: 'weight'."
    assert told.remedy is None


def test_the_backward_that_uses_a_replay_is_told_apart() -> None:
    told = translate(failed({"exception": "ValueError", "text": "bad"}, during="consuming"))
    assert told.message == "The backward that uses the replay of layers.3 raised ValueError: bad."


def test_a_users_index_error_is_not_taken_for_paddles() -> None:
    told = translate(failed({"exception": "IndexError", "text": "list index out of range"}))
    assert told.detail["translation"] is None
    assert told.message == "The replay of layers.3 raised IndexError: list index out of range."


def test_a_users_assertion_is_not_taken_for_recomputes() -> None:
    text = (
        "(External) AssertionError: <EMPTY MESSAGE>\n\nAt:\n  m.py(3): block\n  recompute/recompute.py(338): backward\n"
    )
    told = translate(failed({"exception": "OSError", "text": text}))
    assert told.message == "The replay of layers.3 raised AssertionError: <EMPTY MESSAGE>."


def test_an_exception_without_a_text_is_told_by_its_name() -> None:
    assert translate(failed({"exception": "AssertionError", "text": ""})).message == (
        "The replay of layers.3 raised AssertionError."
    )


@pytest.mark.parametrize("text", TEXTS[::7], ids=lambda t: f"{t['paddle']}-{t['case']}")
def test_translating_twice_changes_nothing(text: dict[str, str]) -> None:
    once = translate(failed(text))
    assert translate(once) == once


@pytest.mark.parametrize(
    "finding",
    [
        Finding("CT104", region=Region("a"), message="m", detail={"text": "Leaf Var"}),
        Finding("CT113", region=Region("a", mode=REENTRANT), message="m", detail={"signal": "SIGSEGV"}),
    ],
)
def test_other_findings_come_back_as_they_are(finding: Finding) -> None:
    assert translate(finding) is finding


@pytest.mark.parametrize(
    ("exception", "text", "expected"),
    [
        ("ValueError", "bad sample", "ValueError: bad sample"),
        ("OSError", "(External) ValueError: bad sample\n\nAt:\n  a.py(3): f", "ValueError: bad sample"),
        ("OSError", "(External) \n{\n    ==== Error message in backward ====\n    KeyError: 'w'\n", "KeyError: 'w'"),
        ("KeyError", "", "KeyError"),
        ("ValueError", "x" * 1000, "ValueError: " + "x" * 285 + "..."),
    ],
)
def test_essence(exception: str, text: str, expected: str) -> None:
    assert essence(exception, text) == expected
