"""A Paddle is told by the source of its seams."""

import argparse
import collections
import inspect
import json
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.probe.seams import known

FUNCTIONS = [
    function
    for module in (argparse, collections, inspect, json, textwrap)
    for owner in [
        module,
        *(c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__),
    ]
    for _, function in inspect.getmembers(owner, inspect.isfunction)
    if function.__module__ == module.__name__ and function.__name__ != "<lambda>" and function.__code__.co_flags & 2
]


def plain(source):
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def test_a_function_is_cut_out_as_inspect_does():
    compared = 0
    for function in FUNCTIONS:
        path = inspect.getsourcefile(function)
        if function.__code__.co_filename != path:
            continue
        lines = Path(path).read_text().splitlines()
        source = plain(inspect.getsource(function))
        if '"""' in source or "'''" in source:  # its lines may look like comments, to both in another way
            continue
        assert known.block(lines, function.__code__.co_firstlineno - 1) == source, function
        compared += 1
    assert compared > 100


def test_comments_blank_lines_and_indentation_do_not_matter_and_code_does():
    lines = ["def f(", "    a,", ") -> int:", "    return a"]
    same = [
        "class C:",
        "    def f(",
        "        a,",
        "    ) -> int:",
        "",
        "        # why",
        "        return a",
        "    x = 1",
    ]
    assert known.block(lines, 0) == known.block(same, 1) == "def f(\na,\n) -> int:\nreturn a"
    assert known.block([*lines[:3], "    return a + 1"], 0) != known.block(lines, 0)


def test_what_is_no_function_is_not_guessed():
    assert known.block([], 0) is None
    assert known.block(["def f("], 0) is None


SEAM = st.sampled_from(["hook mode", "reentrant mode", "backward"])
HASHES = st.dictionaries(SEAM, st.sampled_from(["a", "b", None]), min_size=3)


@given(HASHES, st.lists(st.dictionaries(SEAM, st.sampled_from(["a", "b"]), min_size=3), min_size=1))
def test_each_seam_is_one_of_a_known_release_or_is_named(found, releases):
    unknown, unread = known.judge(found, releases)
    assert set(unread) == {seam for seam, source in found.items() if source is None}
    for seam, source in found.items():
        if source is not None:
            assert (seam in unknown) == (source not in [release[seam] for release in releases])
    assert known.judge(releases[0], releases) == ((), ())


def test_without_anything_to_compare_with_nothing_is_claimed():
    assert known.judge({"hook mode": "a"}, []) == ((), ("hook mode",))


def test_what_is_said_of_it():
    assert known.notes(known.Judgement((), ())) == []
    ((kind, said),) = known.notes(known.Judgement(("hook mode", "backward"), ()))
    assert kind == "unknown_source"
    assert said.startswith("The source of hook mode and backward in this Paddle is that of no known release.")
    ((kind, said),) = known.notes(known.Judgement((), ("pylayer",)))
    assert kind == "not_observed"
    assert said.startswith("whether pylayer is that of a known Paddle: its source is not there")


@pytest.mark.parametrize("version", sorted(known.releases()))
def test_every_release_has_a_hash_of_every_seam(version):
    hashes = known.releases()[version]
    assert list(hashes) == list(known.SEAMS)
    assert all(isinstance(value, str) and len(value) == 8 for value in hashes.values())
