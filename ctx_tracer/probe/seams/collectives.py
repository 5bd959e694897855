"""Collectives: the methods of `core.ProcessGroup`, the wait of their tasks, `dist.reshard` and the start of the group.

Patched on the class, so that every way to a collective that goes through Python is seen, bound early or not. What C++
does by itself is not: DataParallel's reducer, operations on distributed tensors, `_C_ops.c_*`.
Nothing is waited for here, and no value is read.
"""

from __future__ import annotations

import functools
import sys
import weakref
from types import CodeType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.lanes import COLLECTIVE, INIT, RECV, RESHARD, SEND, Entered, Lane, Lanes
from ctx_tracer.probe.seams.patches import Patches, opaque
from ctx_tracer.probe.session import Session
from ctx_tracer.probe.setup import axis_of
from ctx_tracer.probe.sites import Sites
from ctx_tracer.record import layout

# Tasks that were issued and not waited for: a program may drop them, and their ids come again.
MAX_TASKS = 4096


class _Method(NamedTuple):
    """What is where among a method's arguments."""

    kind: str
    tensor: Optional[int]  # the one whose size ranks must agree on, where they must
    peer: Optional[int]  # root, source or destination, counted within the group
    reduce: Optional[int] = None


_METHODS = {
    "all_reduce": _Method(COLLECTIVE, 0, None, 1),
    "allreduce": _Method(COLLECTIVE, 0, None, 1),
    "all_gather": _Method(COLLECTIVE, 1, None),
    "all_gather_into_tensor": _Method(COLLECTIVE, 1, None),
    "all_gather_partial": _Method(COLLECTIVE, 1, None),
    "all_to_all": _Method(COLLECTIVE, 1, None),
    "alltoall": _Method(COLLECTIVE, 0, None),
    "all_to_all_tensor": _Method(COLLECTIVE, 1, None),
    "all_to_all_single": _Method(COLLECTIVE, 1, None),
    "alltoall_single": _Method(COLLECTIVE, 0, None),
    "broadcast": _Method(COLLECTIVE, 0, 1),
    "reduce": _Method(COLLECTIVE, 0, 1, 2),
    "reduce_scatter": _Method(COLLECTIVE, 0, None, 2),
    "reduce_scatter_tensor": _Method(COLLECTIVE, 0, None, 2),
    "scatter": _Method(COLLECTIVE, 0, 2),
    "scatter_tensor": _Method(COLLECTIVE, 0, 2),
    "gather": _Method(COLLECTIVE, 0, 2),
    "barrier": _Method(COLLECTIVE, None, None),
    "send": _Method(SEND, 0, 1),
    "send_partial": _Method(SEND, 0, 1),
    "recv": _Method(RECV, 0, 1),
    "recv_partial": _Method(RECV, 0, 1),
}
_ON_STREAM = "_on_calc_stream"  # returns when it is enqueued, and nobody waits for its task

_FUNCTIONS = (
    ("reshard", RESHARD, ("paddle.distributed.auto_parallel.api", "paddle.distributed")),
    ("init_parallel_env", INIT, ("paddle.distributed.parallel", "paddle.distributed")),
)


class _Group(NamedTuple):
    """A process group as Paddle lists it."""

    alive: Any  # weak reference to Paddle's own group object
    ranks: Optional[Tuple[int, ...]]
    ordinal: int
    lanes: Dict[Any, Lane]  # by kind and peer


class CollectivesSeam:
    """Wraps what ranks do together."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lanes = Lanes(session)
        self._sites = Sites(session.namer)
        self._groups: Dict[int, _Group] = {}  # by id of the process group
        # By id of the task: its call, and whether that was told to have returned.
        self._tasks: Dict[int, Tuple[Entered, bool]] = {}
        self._before: List[Any] = []  # groups that were there before the probe, weakly

    def patch(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        """Patch every method that this Paddle has."""
        core = paddle.base.core
        self._before = [weakref.ref(group) for group in _listed()]
        for name, method in _METHODS.items():
            for full in (name, name + _ON_STREAM):
                original = core.ProcessGroup.__dict__.get(full)
                if original is not None:
                    patches.set(core.ProcessGroup, full, self._wrap(full, method, original, guard))
        patches.set(core.task, "wait", self._wrap_wait(core.task.__dict__["wait"], guard))
        for name, kind, modules in _FUNCTIONS:
            wrap = functools.partial(self._wrap_function, name, kind, guard)
            patches.set_all(modules, name, wrap)

    # --- methods of a process group ---

    def _wrap(self, name: str, method: _Method, original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
        enter, left, raised = guard(self._enter), guard(self._left), guard(self._raised)
        enqueues = name.endswith(_ON_STREAM)
        tasks = self._tasks

        @functools.wraps(original)
        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            opaque()
            entered = enter(name, method, this, args)
            try:
                task = original(this, *args, **kwargs)
            except BaseException:
                if entered is not None:
                    raised(entered)
                raise
            if entered is not None:
                # A synchronous call (the flag is the last argument) is waited for by the very next line of Paddle's:
                # one state less to write.
                if args and args[-1] is True and task is not None and not enqueues:
                    tasks[id(task)] = entered, False
                else:
                    left(entered, task, enqueues)
            return task

        return call

    def _enter(self, name: str, method: _Method, this: Any, args: Tuple[Any, ...]) -> Entered:
        group = self._groups.get(id(this))
        if group is None or group.alive() is None:
            group = self._group(this)
        _, tensor_at, peer_at, reduce_at = method
        count = len(args)
        peer = args[peer_at] if peer_at is not None and count > peer_at else None
        lane = group.lanes.get((method.kind, peer)) or self._lane(group, this, method.kind, peer)
        shape = dtype = None
        if tensor_at is not None and count > tensor_at:
            tensor = args[tensor_at]
            if type(tensor) in (list, tuple):
                tensor = tensor[0] if tensor else None
            if tensor is not None:
                shape, dtype = tuple(tensor.shape), tensor.dtype
        reduce = args[reduce_at] if reduce_at is not None and count > reduce_at else None
        code, line = self._sites.here(3)
        root = _global(group, peer) if peer is not None and method.kind == COLLECTIVE else None
        key = (name, dtype, root, reduce, id(code), line)
        if len(self._tasks) > MAX_TASKS:
            self._tasks.clear()
        return self._lanes.enter(lane, key, shape, _call, name, dtype, root, reduce, code, line)

    def _left(self, entered: Entered, task: Any, enqueues: bool) -> None:
        if enqueues or task is None:
            self._lanes.change(entered, layout.RETURNED)
            return
        self._tasks[id(task)] = entered, True
        self._lanes.change(entered, layout.ISSUED)

    def _raised(self, entered: Entered) -> None:
        self._lanes.change(entered, layout.RAISED)

    # --- tasks ---

    def _wrap_wait(self, original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
        waiting, waited, raised = guard(self._waiting), guard(self._waited), guard(self._raised)
        tasks = self._tasks

        @functools.wraps(original)
        def wait(this: Any, *args: Any, **kwargs: Any) -> Any:
            opaque()
            known = tasks.pop(id(this), None)
            if known is None:
                return original(this, *args, **kwargs)
            entered, issued = known
            if issued:
                waiting(entered)
            try:
                result = original(this, *args, **kwargs)
            except BaseException:
                raised(entered)
                raise
            waited(entered)
            return result

        return wait

    def _waiting(self, entered: Entered) -> None:
        self._lanes.change(entered, layout.WAITING)

    def _waited(self, entered: Entered) -> None:
        self._lanes.change(entered, layout.RETURNED)

    # --- functions ---

    def _wrap_function(self, name: str, kind: str, guard: Guard, original: Callable[..., Any]) -> Callable[..., Any]:
        enter, left, raised = guard(self._enter_function), guard(self._returned), guard(self._raised)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            opaque()
            entered = enter(name, kind, args, kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                if entered is not None:
                    raised(entered)
                raise
            if entered is not None:
                left(entered)
            return result

        return call

    def _enter_function(self, name: str, kind: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[Entered]:
        shape, dtype = None, None
        if kind == INIT:
            ranks = tuple(range(self._session.identity.world_size))
        else:
            tensor = args[0] if args else kwargs.get("dist_tensor")
            mesh = args[1] if len(args) > 1 else kwargs.get("mesh")
            if tensor is None or mesh is None or not self._session.paddle.in_dynamic_mode():
                return None
            held = tensor.process_mesh.process_ids if tensor.is_dist() else ()
            ranks = tuple(sorted({*mesh.process_ids, *held}))
            shape, dtype = tuple(tensor.shape), tensor.dtype
        if len(ranks) < 2:
            return None
        code, line = self._sites.here(3)
        lane = self._lanes.lane((kind, ranks), _described, kind, ranks, 0, None, True)
        key = (name, dtype, id(code), line)
        return self._lanes.enter(lane, key, shape, _call, name, dtype, None, None, code, line)

    def _returned(self, entered: Entered) -> None:
        self._lanes.change(entered, layout.RETURNED)

    # --- groups ---

    def _lane(self, group: _Group, this: Any, kind: str, peer: Optional[int]) -> Lane:
        other = None if kind == COLLECTIVE else peer
        # A group that Paddle does not list has no ranks to be told by: it is its own.
        key = (kind, group.ranks if group.ranks is not None else id(this), group.ordinal, other)
        lane = group.lanes[(kind, peer)] = self._lanes.lane(key, self._describe_lane, group, kind, other)
        return lane

    def _describe_lane(self, group: _Group, kind: str, peer: Optional[int]) -> Dict[str, Any]:
        from_start = group.ranks is not None and not any(known() is group.alive() for known in self._before)
        return _described(kind, group.ranks, group.ordinal, _global(group, peer), from_start)

    def _group(self, this: Any) -> _Group:
        listed = _listed()
        found = next((group for group in listed if group.process_group is this), None)
        if found is None:
            return _Group(_gone, None, 0, {})
        ranks = tuple(found.ranks)
        ordinal = sum(tuple(group.ranks) == ranks and group.id < found.id for group in listed)
        known = self._groups[id(this)] = _Group(weakref.ref(found), ranks, ordinal, {})
        return known


def _gone() -> None:
    """The weak reference to a group that Paddle does not list."""


def _call(
    name: str, dtype: Any, root: Optional[int], reduce: Any, code: Optional[CodeType], line: int
) -> Dict[str, Any]:
    return {
        "op": name,
        "dtype": None if dtype is None else str(dtype).rpartition(".")[2],
        "root": root,
        "reduce": None if reduce is None else str(reduce).rpartition(".")[2],
        "source": None if code is None else f"{code.co_filename.rpartition('/')[2]}:{line}",
    }


def _described(
    kind: str, ranks: Optional[Tuple[int, ...]], ordinal: int, peer: Optional[int], from_start: bool
) -> Dict[str, Any]:
    known = None if ranks is None else list(ranks)
    axis = None if ranks is None else axis_of(ranks)
    return {"kind": kind, "ranks": known, "axis": axis, "group": ordinal, "peer": peer, "from_start": from_start}


def _global(group: _Group, rank: Optional[int]) -> Optional[int]:
    """The global rank of a rank of the group."""
    if rank is None or group.ranks is None or not 0 <= rank < len(group.ranks):
        return rank
    return group.ranks[rank]


def _listed() -> List[Any]:
    """Paddle's groups, in the order in which they were made."""
    module = sys.modules.get("paddle.distributed.communication.group")
    manager = getattr(module, "_GroupManager", None)
    groups = dict(getattr(manager, "group_map_by_id", None) or {})
    return [groups[number] for number in sorted(groups)]
