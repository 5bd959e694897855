# ruff: noqa: ARG002, ARG005, PLC3002, PLW0108 -- these functions are looked at, not called
"""Regions are called what a reader of the script would call them, whatever was handed to recompute."""

from __future__ import annotations

import functools
import types
from types import SimpleNamespace
from typing import Any

import pytest

from ctx_tracer.probe.naming import MAX_HEAP_WALKS, Namer


class Untouchable:
    """Like a lazy proxy among the user's values: it resolves itself as soon as anything is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"a lazy object was asked for {name}")

    def __len__(self) -> int:
        raise AssertionError("a lazy object was measured")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a lazy object was compared")

    __hash__ = None

    def __bool__(self) -> bool:
        raise AssertionError("a lazy object was tested")


@pytest.fixture(scope="module")
def model(real_paddle):
    nn = real_paddle.nn

    class Block(nn.Layer):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(4)
            self.mlp = nn.Linear(4, 4)

        def attend(self, x, mask=None, scale=1):
            return self.norm(x)

        def forward(self, x):
            return self.mlp(self.norm(x))

    class Model(nn.Layer):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(8, 4)
            self.layers = nn.LayerList([Block() for _ in range(12)])
            self.head = nn.Linear(4, 8)
            self.gate = self.create_parameter([4])

        def encode(self, ids):
            return self._embedded(ids)

        def _embedded(self, ids):
            return self.embed(ids)

        def forward(self, ids):
            return self.head(self.layers[0](self.embed(ids)))

    return Model()


@pytest.fixture(scope="module")
def namer(real_paddle, model):
    return Namer(real_paddle)


def create_custom_forward(module):
    def custom_forward(*inputs):
        return module(*inputs)

    return custom_forward


def run_function(begin, end, funcs):
    """As recompute_sequential makes it: `end` belongs to it."""

    def do_run(input_):
        for i in range(begin, end + 1):
            input_ = funcs[i](input_)
        return input_

    return do_run


def forward_function(run_function, start, end):
    """As PipelineLayer makes it: `end` does not belong to it."""

    def execute_func(*x):
        for layer in run_function[start:end]:
            x = layer(x)
        return x

    return execute_func


def segment(layers):
    def do_run(x):
        for layer in layers:
            x = layer(x)
        return x

    return do_run


def with_globals(source: str, **names: Any):
    """A function of a module of its own, in which these names are global."""
    scope: dict[str, Any] = dict(names)
    exec(compile(source, "script.py", "exec"), scope)
    return scope["function"]


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


class Runner:
    def __init__(self, layer):
        self.layer = layer
        self.lazy = Untouchable()
        self.other = layer

    def __call__(self, x):
        return self.layer(x)

    def run(self, x):
        return self.layer(x)


def run_it(layer, x):
    return layer(x)


def slicing(layer, start, end):
    return lambda x: layer(x)[start:end]


def over_block_and_its_part(block):
    norm = block.norm
    return lambda x: block(norm(x))


#: What is handed to recompute, made of the model; its arguments; the name.
CALLS = {
    "a layer": (lambda m: m.layers[3], "layers.3"),
    "a layer inside a layer": (lambda m: m.layers[3].mlp, "layers.3.mlp"),
    "forward of a layer": (lambda m: m.layers[3].forward, "layers.3"),
    "a method of a layer": (lambda m: m.layers[3].attend, "layers.3"),
    "a partial of a layer": (lambda m: functools.partial(m.layers[3], flag=True), "layers.3"),
    "a partial in a partial of a method": (
        lambda m: functools.partial(functools.partial(m.layers[3].attend, scale=2), mask=None),
        "layers.3",
    ),
    "a partial with the layer as argument": (lambda m: functools.partial(run_it, m.layers[3]), "layers.3"),
    "create_custom_forward": (lambda m: create_custom_forward(m.layers[3]), "layers.3"),
    "create_custom_forward of a method": (lambda m: create_custom_forward(m.layers[3].attend), "layers.3"),
    "create_custom_forward of a closure": (
        lambda m: create_custom_forward(create_custom_forward(m.layers[3])),
        "layers.3",
    ),
    "a closure over some layers": (lambda m: segment(list(m.layers)[4:8]), "layers[4..7]"),
    "a closure over layers and methods": (
        lambda m: segment([m.layers[4], m.layers[5].attend, functools.partial(m.layers[6], 1)]),
        "layers[4..6]",
    ),
    "recompute_sequential's": (lambda m: run_function(4, 7, list(m.layers)), "layers[4..7]"),
    "PipelineLayer's": (lambda m: forward_function(list(m.layers), 4, 8), "layers[4..7]"),
    "PipelineLayer's, of one layer": (lambda m: forward_function(list(m.layers), 4, 5), "layers.4"),
    "PipelineLayer's, to the end": (lambda m: forward_function(list(m.layers), 8, 12), "layers[8..11]"),
    "numbers called start and end": (lambda m: slicing(m.layers[3], 0, 2), "layers.3"),
    "a lambda over a layer": (lambda m: (lambda layer: lambda x: layer(x) * 2)(m.layers[3]), "layers.3"),
    "a lambda over two layers": (
        lambda m: (lambda a, b: lambda x: b(a(x)))(m.layers[1], m.layers[5]),
        "layers.1+layers.5",
    ),
    "a lambda over a layer and a part of it": (lambda m: over_block_and_its_part(m.layers[3]), "layers.3"),
    "a lambda with the layer as default": (
        lambda m: (lambda block: lambda x, layer=block: layer(x))(m.layers[3]),
        "layers.3",
    ),
    "a global layer": (
        lambda m: with_globals("function = lambda x: layer(x)", layer=m.layers[3]),
        "layers.3",
    ),
    "a decorated function": (lambda m: decorated(create_custom_forward(m.layers[3])), "layers.3"),
    "an object that can be called": (lambda m: Runner(m.layers[3]), "layers.3"),
    "a method of an object": (lambda m: Runner(m.layers[3]).run, "layers.3"),
    "the whole model in a lambda": (
        lambda m: with_globals("\n\nfunction = lambda x: model.embed(x)", model=m),
        "<lambda>@script.py:3",
    ),
    "no layer at all": (lambda m: with_globals("def function(x):\n    return x"), "function@script.py:1"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_region_is_called_by_what_it_runs(namer, model, call: str) -> None:
    make, expected = CALLS[call]
    function = make(model)
    assert namer.name(namer.call_site(function, ()), "train.py:7") == expected


def test_a_layer_among_the_arguments_names_a_function_that_holds_none(namer, model) -> None:
    site = namer.call_site(run_it, (model.layers[3], 1.0))
    assert namer.name(site, None) == "layers.3"


def test_without_python_code_the_call_is_named_by_where_it_stands(namer) -> None:
    assert namer.name(namer.call_site(len, ()), "train.py:7") == "len@train.py:7"


def test_a_function_that_only_holds_a_parameter_owns_it(namer, model) -> None:
    gate = model.gate
    site = namer.call_site(lambda x: x * gate, ())
    assert site.parameters == (gate,)
    assert namer.owned(site) == (gate,)


@pytest.mark.parametrize(
    ("make", "owned"),
    [
        (lambda m: lambda ids: m.embed(ids), ["embed"]),
        (lambda m: lambda ids: m.embed(ids) * m.gate, ["embed", "gate"]),
        (lambda m: m.encode, ["embed"]),
        (lambda m: m.forward, ["head", "layers", "embed"]),
        (lambda m: m, [""]),
        (lambda m: create_custom_forward(m), [""]),
        (lambda m: m.layers[3].attend, ["layers.3.norm"]),
    ],
    ids=["one part", "a part and a parameter", "a method of a method", "forward", "the model", "a wrapper", "a block"],
)
def test_of_a_function_over_the_whole_model_only_what_it_names_is_owned(namer, model, make, owned) -> None:
    members = dict(model.named_sublayers(include_self=True)) | dict(model.named_parameters())
    found = [next(n for n, m in members.items() if m is part) for part in namer.owned(namer.call_site(make(model), ()))]
    assert sorted(found) == sorted(owned)


@pytest.mark.parametrize(
    "make",
    [
        lambda lazy, layer: with_globals("function = lambda x: layer(x, lazy)", layer=layer, lazy=lazy),
        lambda lazy, layer: lambda x: layer(x, lazy),
        lambda lazy, layer: lambda x, more=lazy: layer(x, more),
        lambda lazy, layer: functools.partial(run_it, layer, lazy),
        lambda lazy, layer: functools.partial(run_it, [lazy, layer], lazy),
        lambda lazy, layer: segment([lazy, layer]),
        lambda lazy, layer: run_function(lazy, lazy, [layer]),
        lambda lazy, layer: Runner(layer),
    ],
    ids=["global", "closure", "default", "argument", "list of arguments", "list", "bounds", "attribute"],
)
def test_lazy_objects_are_not_touched(namer, model, make) -> None:
    lazy = Untouchable()
    site = namer.call_site(make(lazy, model.layers[3]), (lazy,))
    assert namer.name(site, None) == "layers.3"
    namer.owned(site)


def test_a_default_that_the_call_does_not_use_is_not_held(namer) -> None:
    def block(x, mask="a mask", *, scale=1.0):
        return x

    def held(*args, function=block, **kwargs):
        return dict(namer.values_held(function, args, kwargs))

    assert held("x") == {"default mask": "a mask"}
    assert held("x", "another") == {}
    assert held("x", mask="another") == {}
    assert held("x", function=functools.partial(block, mask="another")) == {}
    assert held(function=functools.partial(block, "x", "another")) == {}
    assert held(function=functools.partial(block, "x")) == {"default mask": "a mask"}
    assert held("x", function=types.MethodType(lambda self, x, mask="a mask": x, object())) == {
        "default mask": "a mask"
    }


def test_names_follow_a_model_that_grows_and_looking_for_them_ends(real_paddle) -> None:
    nn = real_paddle.nn
    namer = Namer(real_paddle)
    first = nn.Sequential(nn.Linear(2, 2))
    assert namer.layer(first[0]) == "0"
    second = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    assert namer.layer(second[1][0]) == "1.0"
    for _ in range(3 * MAX_HEAP_WALKS):
        namer.layer(nn.Linear(2, 2))
    assert namer._walks == MAX_HEAP_WALKS
    late = nn.Sequential(nn.Linear(2, 2))
    assert namer.layer(late[0]) is None
    assert namer.layer(second[1][0]) == "1.0"


def test_a_layer_that_took_the_place_of_another_does_not_take_its_name(real_paddle) -> None:
    """CPython gives the address of an object that died to the next one of its size."""
    namer = Namer(real_paddle)
    entry = (SimpleNamespace(), "someone.else")
    layer = real_paddle.nn.Linear(2, 2)
    namer._layers[id(layer)] = (lambda: entry[0], "someone.else")
    assert namer.layer(layer) == ""


def test_a_parameter_is_called_as_in_its_model(namer, model) -> None:
    namer.layer(model.layers[0])
    assert namer.parameter(model.layers[3].mlp.weight.name) == "layers.3.mlp.weight"
    assert namer.live(model.gate.name) is model.gate
    assert namer.parameter("nobody's") == "nobody's"
    assert namer.parameter(None) is None
    assert any(parameter is model.gate for parameter in namer.parameters())


def test_the_nearest_frame_of_the_users_is_found_beyond_paddles_and_ours(namer, real_paddle) -> None:
    import sys

    frame = sys._getframe()
    assert namer.user_frame(frame) is frame
    assert namer.source(frame).startswith("test_naming.py:")
    assert "test_the_nearest_frame" in namer.producer(frame)
    assert namer.user_frame(None) is None
    assert namer.source(None) is None
    assert namer.producer(None) is None


def test_a_module_type_is_not_taken_for_a_layer(namer) -> None:
    function = with_globals("function = lambda x: os.getpid()", os=types.ModuleType("os"))
    assert namer.call_site(function, ()).layers == ()
