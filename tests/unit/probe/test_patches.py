# ruff: noqa: ARG005 -- these functions stand for others, whose arguments they have
"""An attribute that was replaced is put back as it was: the same object, or none at all."""

from __future__ import annotations

import sys
import types
from typing import Any

from ctx_tracer.probe.seams.patches import Patches


def make() -> tuple[Any, Any]:
    class Base:
        def inherited(self):
            return "inherited"

        @classmethod
        def made(cls):
            return cls.__name__

    class Owner(Base):
        value = 1

        def method(self):
            return "method"

        @staticmethod
        def static(x):
            return x

        @classmethod
        def of_class(cls):
            return cls

    return Base, Owner


def names(owner: Any) -> dict[str, Any]:
    return dict(owner.__dict__)


def test_every_kind_of_attribute_is_restored_by_identity() -> None:
    _, owner = make()
    before = names(owner)
    patches = Patches()
    patches.set(owner, "method", lambda self: "ours")
    patches.set(owner, "static", staticmethod(lambda x: "ours"))
    patches.set(owner, "of_class", classmethod(lambda cls: "ours"))
    patches.set(owner, "value", 2)
    assert (owner().method(), owner.static(1), owner.of_class(), owner.value) == ("ours", "ours", "ours", 2)

    assert patches.restore() == []

    after = names(owner)
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
    assert owner.static(1) == 1


def test_an_inherited_attribute_is_deleted_again() -> None:
    base, owner = make()
    patches = Patches()
    patches.set(owner, "inherited", lambda self: "ours")
    patches.set(owner, "made", classmethod(lambda cls: "ours"))
    assert owner().inherited() == owner.made() == "ours"
    assert base().inherited() == "inherited"

    assert patches.restore() == []

    assert "inherited" not in owner.__dict__
    assert "made" not in owner.__dict__
    assert owner().inherited() == "inherited"
    assert owner.made() == "Owner"


def test_a_function_of_a_module_is_restored() -> None:
    module = types.ModuleType("a_module")
    module.function = original = lambda: 1
    patches = Patches()
    patches.set(module, "function", lambda: 2)
    assert module.function() == 2
    patches.restore()
    assert module.function is original


def test_what_somebody_patched_on_top_of_ours_is_left_and_named() -> None:
    _, owner = make()
    patches = Patches()
    patches.set(owner, "method", lambda self: "ours")
    patches.set(owner, "value", 2)
    owner.method = theirs = lambda self: "theirs"

    assert patches.restore() == ["Owner.method"]

    assert owner.__dict__["method"] is theirs
    assert owner.value == 1


def test_what_somebody_patched_and_removed_again_is_ours_to_restore() -> None:
    _, owner = make()
    original = owner.__dict__["method"]
    patches = Patches()
    patches.set(owner, "method", lambda self: "ours")
    ours = owner.__dict__["method"]
    owner.method = lambda self: "theirs"
    owner.method = ours
    assert patches.restore() == []
    assert owner.__dict__["method"] is original


def test_the_same_attribute_patched_twice_goes_back_to_the_first() -> None:
    _, owner = make()
    original = owner.__dict__["method"]
    patches = Patches()
    patches.set(owner, "method", lambda self: 1)
    patches.set(owner, "method", lambda self: 2)
    patches.restore()
    assert owner.__dict__["method"] is original


def test_restoring_again_does_nothing() -> None:
    _, owner = make()
    patches = Patches()
    patches.set(owner, "method", lambda self: "ours")
    patches.restore()
    owner.method = later = lambda self: "later"
    assert patches.restore() == []
    assert owner.__dict__["method"] is later


def test_what_modules_share_is_still_shared(monkeypatch: Any) -> None:
    shared, other = (lambda: "shared"), (lambda: "other")
    modules = {name: types.ModuleType(name) for name in ("first_owner", "second_owner", "third_owner")}
    for name, function in zip(modules, (shared, shared, other), strict=True):
        monkeypatch.setitem(sys.modules, name, modules[name])
        modules[name].save = function
    patches = Patches()
    patches.set_all([*modules, "never_imported"], "save", lambda original: lambda: f"ours, {original()}")
    first, second, third = modules.values()
    assert first.save is second.save
    assert [module.save() for module in modules.values()] == ["ours, shared", "ours, shared", "ours, other"]
    assert patches.restore() == []
    assert (first.save, second.save, third.save) == (shared, shared, other)
