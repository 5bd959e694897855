"""Facts of a tensor, read from Python. No values, no collective, no sync, no reference kept.

What is safe to read is measured: `strides` of an undefined dist tensor aborts the process (Paddle 3.0 and 3.1), `repr`
of a dist tensor is a collective, and reading `.name` of an activation generates one (so only persistable tensors are
asked).
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ctx_tracer.model import Facts
from ctx_tracer.probe.guard import Guard, Hook


class Observation(NamedTuple):
    """Facts in the form in which they are compared: equal observations are equal tuples."""

    dtype: Optional[str] = None  # "float32"
    shape: Optional[Tuple[int, ...]] = None
    strides: Optional[Tuple[int, ...]] = None  # dense tensors only
    initialized: Optional[bool] = None
    stop_gradient: Optional[bool] = None
    placements: Optional[Tuple[str, ...]] = None  # dist tensors only
    process_mesh: Optional[str] = None  # dist tensors only
    local_shape: Optional[Tuple[int, ...]] = None  # dist tensors only
    place: Optional[str] = None  # only where this Paddle knows more than one place
    parameter: Optional[str] = None  # Paddle's name of a persistable tensor


NOTHING = Observation()  # a slot that holds no tensor

_new = tuple.__new__  # a third of the price of a NamedTuple's own constructor

# A model has some hundred kinds of tensors; lengths that vary make more. About 300 bytes each.
MAX_KNOWN = 1 << 14


class Observer:
    """Reads observations. One per process: it interns what dist tensors hold."""

    name = "python"

    def __init__(self, paddle: Any) -> None:
        self.tensor_type = paddle.base.core.eager.Tensor
        core = paddle.base.core
        self._one_place = not (core.is_compiled_with_cuda() or core.is_compiled_with_xpu() or _custom_devices(core))
        self._known: Dict[Tuple[Any, ...], Observation] = {}
        self._dtypes: Dict[int, str] = {}
        self._meshes: List[Tuple[Any, str]] = []  # meshes of Paddle 2.6 cannot be hashed; a job has a handful

    def is_tensor(self, value: Any) -> bool:
        """Whether `value` is an eager tensor (dense, dist or a parameter)."""
        return issubclass(type(value), self.tensor_type)  # a lazy proxy among arguments would resolve for isinstance

    def read(self, tensor: Any) -> Observation:
        """What `tensor` is now. A fact that cannot be read is None; never raises for the state a tensor is in."""
        if not self.is_tensor(tensor):
            return NOTHING
        try:
            return self._read(tensor)
        except RecursionError:
            raise
        except (RuntimeError, ValueError, OSError):  # an undefined tensor: read what can be read
            return self._read_broken(tensor)

    def before(self, hook: Hook, observed: List[Observation], guard: Guard) -> Hook:
        """`hook`, its tensor read first and noted in `observed`."""
        return guard.before(hook, self._into(observed))

    def after(self, hook: Hook, observed: List[Observation], guard: Guard) -> Hook:
        """The same, once the hook has returned."""
        return guard.after(hook, self._into(observed))

    def spent(self) -> int:
        """Nanoseconds in such hooks since the last call, which the guard could not account for."""
        return 0

    def _into(self, observed: List[Observation]) -> Callable[[Any], None]:
        read, append = self.read, observed.append

        def note(tensor: Any) -> None:
            append(read(tensor))

        return note

    def _read(self, tensor: Any) -> Observation:
        place = None if self._one_place else str(tensor.place)
        parameter = tensor.name if tensor.persistable else None
        if tensor.is_dist():
            facts_of_dist = (
                self._dtypes.get(tensor.dtype.value) or self._dtype_name(tensor.dtype),
                tuple(tensor.shape),
                None,
                tensor._is_initialized(),
                tensor.stop_gradient,
                _placement_names(tensor.placements),
                self._mesh_name(tensor.process_mesh),
                tuple(tensor._local_shape),
                place,
                parameter,
            )
            return self._known.get(facts_of_dist) or self._intern(facts_of_dist)
        facts_of_dense = (
            self._dtypes.get(tensor.dtype.value) or self._dtype_name(tensor.dtype),
            tuple(tensor.shape),
            tuple(tensor.strides),
            tensor._is_initialized(),
            tensor.stop_gradient,
            None,
            None,
            None,
            place,
            parameter,
        )
        return self._known.get(facts_of_dense) or self._intern(facts_of_dense)

    def _intern(self, observed: Tuple[Any, ...]) -> Observation:
        # Training sees the same tensors again and again. One object for each kind of them keeps the garbage collector
        # as idle as it is without us, and makes comparing a matter of identity.
        observation = _new(Observation, observed)
        if len(self._known) < MAX_KNOWN:
            self._known[observed] = observation
        return observation

    def _read_broken(self, tensor: Any) -> Observation:
        dist = tensor.is_dist()
        facts = {
            "dtype": lambda: self._dtype_name(tensor.dtype),
            "shape": lambda: tuple(tensor.shape),
            "initialized": tensor._is_initialized,
            "stop_gradient": lambda: tensor.stop_gradient,
            "placements": lambda: _placement_names(tensor.placements) if dist else None,
            "process_mesh": lambda: self._mesh_name(tensor.process_mesh) if dist else None,
            "parameter": lambda: tensor.name if tensor.persistable else None,
        }
        known = {}
        for name, read in facts.items():
            try:
                known[name] = read()
            except (RuntimeError, ValueError, OSError):
                continue
        if dist:
            known["local_shape"] = _local_shape(tensor)
        return Observation(**known)

    def _dtype_name(self, dtype: Any) -> str:
        # Paddle's enumeration costs 260 ns to hash, 400 ns to compare and 1.3 us to print; its number 130 ns to read.
        return self._dtypes.setdefault(dtype.value, str(dtype).rpartition(".")[2])

    def _mesh_name(self, mesh: Any) -> Optional[str]:
        if mesh is None or not mesh.process_ids:  # an undefined dist tensor answers with an empty mesh
            return None
        for known, name in self._meshes:
            if known == mesh:
                return name
        name = f"{list(mesh.process_ids)} shape {list(mesh.shape)} axes {', '.join(mesh.dim_names)}"
        if len(self._meshes) < 64:  # a job that makes a mesh per step must not make this list grow
            # A copy: Paddle's own object points into the tensor, and is another mesh once that tensor is gone.
            self._meshes.append((copy.copy(mesh), name))
        return name


def grads(tensor: Any) -> Tuple[bool, bool]:
    """Whether `tensor` has a grad and a main_grad now. `main_grad` is an attribute that trainers put on parameters."""
    return tensor.grad is not None, getattr(tensor, "main_grad", None) is not None


def facts(observation: Observation, **more: Any) -> Dict[str, Any]:
    """`observation` in the words of the report (`Facts.to_dict()`), with facts read apart, such as `has_grad`."""
    if observation == NOTHING:
        return Facts(**more).to_dict()
    known = observation._asdict()
    parameter = known.pop("parameter")
    more.setdefault("name", parameter)
    return Facts(**known, **more).to_dict()


def has_value(observation: Observation) -> bool:
    """Whether the tensor holds a local value.

    `_is_initialized()` alone is not enough: it is True on the broken tensors of Paddle 3.0 and 3.1, whose local shape
    is [0].
    """
    if not observation.initialized:
        return False
    local = observation.local_shape
    return local is None or 0 not in local


def _local_shape(tensor: Any) -> Optional[Tuple[int, ...]]:
    try:
        return tuple(tensor._local_shape)
    except (RuntimeError, ValueError, OSError):
        return None


def _placement_names(placements: Any) -> Tuple[str, ...]:
    # Never keep Paddle's own objects: before 3.1 they point into the tensor, and comparing one with another after that
    # tensor is gone is a segmentation fault.
    return tuple([_placement_name(placement) for placement in placements or ()])


def _placement_name(placement: Any) -> str:
    if placement.is_shard() and hasattr(placement, "get_dim"):  # one dimension over two axes has none (Paddle 3.3)
        return f"Shard({placement.get_dim()})"
    return "Replicate()" if placement.is_replicated() else str(placement)


def _custom_devices(core: Any) -> bool:
    return bool(getattr(core, "get_all_custom_device_type", list)())
