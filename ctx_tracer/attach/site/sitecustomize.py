"""Runs at the start of every Python process under `ctx-tracer run`, before the program's first line.

The line that `ctx-tracer install-pth` writes runs it too, in every process of an environment.

It only leaves a finder behind that waits for `import paddle`: a process that never imports Paddle pays for two string
comparisons per import. Then it gives way to the `sitecustomize` that it shadows and takes its folder off `sys.path`, so
that the program finds everything where it was. Nothing that goes wrong here reaches the program.
Python 3.8 syntax; only `os` and `sys`, which the interpreter has loaded already.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))
# Recompute's module is imported by `import paddle`; the probe is installed when both have been executed to their end.
_AWAITED = ("paddle", "paddle.distributed.fleet.recompute.recompute")


class CtxTracerFinder:
    """Finds `ctx_tracer` by its place, and nothing else of that environment; tells when Paddle has been imported."""

    def __init__(self, activate):  # type: ignore[no-untyped-def]
        self.awaited = set(_AWAITED)
        self.activate = activate

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        """The import system's protocol: a spec, or None to let the next finder answer."""
        if fullname == "ctx_tracer":
            from importlib.util import spec_from_file_location

            init = os.path.join(_PACKAGE, "__init__.py")
            return spec_from_file_location(fullname, init, submodule_search_locations=[_PACKAGE])
        if fullname not in self.awaited:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find is not None and finder is not self else None
            if spec is not None:
                self.listen(spec.loader, fullname)
                return spec
        return None

    def listen(self, loader, fullname):  # type: ignore[no-untyped-def]
        """Follow one execution of the module; the loader stays what it is, so `__loader__` and sources stay right."""
        try:
            execute = loader.exec_module

            def exec_module(module):  # type: ignore[no-untyped-def]
                loader.__dict__.pop("exec_module", None)
                try:
                    execute(module)
                except Exception as error:
                    _note("Paddle could not be imported: %s: %s" % (type(error).__name__, error))
                    raise
                self.awaited.discard(fullname)
                if not self.awaited:
                    try:
                        self.activate()
                    except Exception as error:  # noqa: BLE001, training goes on without the tracer
                        _complain(error)

            loader.exec_module = exec_module
        except Exception as error:  # noqa: BLE001, a loader that cannot be followed must still load
            _complain(error)


def _activate():  # type: ignore[no-untyped-def]
    from ctx_tracer.attach.activate import activate

    activate()


def _note(text):  # type: ignore[no-untyped-def]
    """Why this process leaves no record; told where no other leaves one either."""
    try:  # noqa: SIM105, contextlib would have to be imported
        _leave("pid-%d.note" % os.getpid(), text)
    except Exception:  # noqa: BLE001, S110, there is nobody left to tell
        pass


def _complain(error):  # type: ignore[no-untyped-def]
    """Leave the reason where the daemon finds it: standard error belongs to the program."""
    try:
        import traceback

        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        _leave("pid-%d.error" % os.getpid(), text)
    except Exception:  # noqa: BLE001, S110, there is nobody left to tell
        pass


def _leave(name, text):  # type: ignore[no-untyped-def]
    """A file for the daemon, whole from the moment that it is there."""
    path = os.path.join(os.environ["CTX_TRACER_RECORD_DIR"], name)
    with open(path + ".part", "w") as file:
        file.write(text)
    os.rename(path + ".part", path)


def wait_for_paddle(activate):  # type: ignore[no-untyped-def]
    """Call `activate` when Paddle has been imported; nothing where somebody waits already, or all is switched off."""
    known = any(type(finder).__name__ == "CtxTracerFinder" for finder in sys.meta_path)
    if os.environ.get("CTX_TRACER_DISABLE") != "1" and not known:
        sys.meta_path.insert(0, CtxTracerFinder(activate))


def _give_way():  # type: ignore[no-untyped-def]
    """Run the `sitecustomize` that would have run without us; its errors are its own."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ in ("sitecustomize", "ctx_tracer_dormant"):
    wait_for_paddle(_activate)
if __name__ == "sitecustomize":
    _give_way()
