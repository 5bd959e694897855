"""Whatever a stranger's process hands in becomes bounded JSON, without a call into it."""

import json
import sys
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_tracer.model import Finding, Region
from ctx_tracer.record import layout
from ctx_tracer.record.plain import MAX_TEXT, encode, encode_named
from ctx_tracer.record.reader import RecordReader


class Untouchable:
    """Like a distributed tensor, which must not be asked anything."""

    def __getattribute__(self, name):
        if name == "__class__":  # isinstance asks for it
            return Untouchable
        raise AssertionError(f"{name} was asked for")

    def __str__(self):
        raise AssertionError("str() would be a collective")

    __repr__ = __bool__ = __len__ = __iter__ = __float__ = __index__ = __hash__ = __str__


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())  # lone surrogates and NUL among them
    | st.binary()
    | st.builds(Untouchable),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.none() | st.tuples(st.text()), inner)
    ),
    max_leaves=30,
)


@settings(max_examples=60, deadline=None)
@given(anything)
def test_anything_is_json_that_is_also_utf8(value):
    back = json.loads(encode(value).decode("ascii"), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    json.dumps(back, ensure_ascii=False).encode("utf-8")


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters()), anything)
def test_a_record_takes_anything_under_any_name(new_writer, tmp_path_factory, kind, value):
    writer = new_writer(tmp_path_factory.mktemp("record"))
    number = writer.define(kind, {"value": value})
    writer.detail(kind, {"value": value})
    writer.finding(Finding("CT105", region=Region(kind), message=kind, captured={"value": value}))
    reader = RecordReader(writer.path)
    expected = json.loads(encode_named(kind, {"value": value}))
    detail, finding = reader.poll()
    assert [detail.kind, detail.data] == expected
    assert [reader.definitions()[number].kind, reader.definitions()[number].data] == expected
    assert finding.finding.captured == expected[1]


def test_a_lone_surrogate_is_spelled_out():
    assert json.loads(encode("a\ud800b\0")) == "a\\ud800b\0"


def test_a_long_text_is_cut_with_a_mark():
    assert json.loads(encode("x" * (1 << 20))) == "x" * MAX_TEXT + "...[1048576 characters]"
    assert json.loads(encode("x" * MAX_TEXT)) == "x" * MAX_TEXT


def test_numbers_that_json_does_not_have_become_text():
    values = [float("nan"), float("inf"), 1 << 256, 1e300]
    assert json.loads(encode(values)) == ["nan", "inf", "<int of 257 bits>", 1e300]


def test_a_mapping_proxy_is_a_mapping_and_a_stranger_is_named_by_its_type():
    assert json.loads(encode(MappingProxyType({"a": (1, {2})}))) == {"a": [1, [2]]}
    assert json.loads(encode_named("kind", Untouchable())) == ["kind", {"value": "<Untouchable>"}]


def test_what_is_cyclic_or_deep_ends():
    cycle: list = []
    cycle += [cycle, cycle, cycle]
    assert len(encode(cycle)) < 100 * layout.MAX_DETAIL
    deep: list = []
    for _ in range(sys.getrecursionlimit() * 2):
        deep = [deep]
    assert b"<more>" in encode(deep)


@pytest.mark.parametrize(
    "value", [[{}] * 10_000_000, ["x" * MAX_TEXT] * 100_000, {str(i): [i] for i in range(1_000_000)}]
)
def test_what_is_cut_short_is_too_large_for_every_limit(value):
    assert layout.MAX_DETAIL < len(encode(value)) < 20 * layout.MAX_DETAIL
