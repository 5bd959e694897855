"""Runs once in a process that is attached to, in a thread of its own; `agent.c` calls it.

Beside this file lie `request.json` (the folder of the package, and what is asked of `ctx_tracer.attach.control`) and,
afterwards, `answer.json`. Python 3.8 syntax and the standard library: it runs in whatever the training runs in, which
need not have `ctx_tracer` installed.
"""


def _load(package: str) -> None:
    """`ctx_tracer` from its folder, and nothing else of that environment."""
    import sys
    from importlib.util import module_from_spec, spec_from_file_location

    if "ctx_tracer" not in sys.modules:
        spec = spec_from_file_location("ctx_tracer", package + "/__init__.py", submodule_search_locations=[package])
        module = sys.modules["ctx_tracer"] = module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]


def _answer(here: str) -> None:
    import json
    import os

    with open(here + "/request.json") as file:
        request = json.load(file)
    try:
        _load(request["package"])
        from ctx_tracer.attach import control

        answer = control.listen().answer(request)
    except Exception as error:  # noqa: BLE001, whoever attached is told, the program is not
        answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    with open(here + "/answer.part", "w") as file:
        json.dump(answer, file)
    os.rename(here + "/answer.part", here + "/answer.json")


_answer(__file__.rpartition("/")[0])
