"""What is read of a tensor: plain values, the same for the same tensor, and nothing of Paddle's kept."""

from __future__ import annotations

import gc
import weakref

import pytest

from ctx_tracer.probe.observe.python import NOTHING, Observer, facts, grads, has_value


@pytest.fixture(scope="module")
def observer(real_paddle):
    return Observer(real_paddle)


@pytest.fixture
def distributed(real_paddle):
    """A distributed tensor of a mesh of one process."""
    import paddle.distributed as dist

    mesh = dist.ProcessMesh([0], dim_names=["mp"])

    def make(shape=(2, 4)):
        return dist.shard_tensor(real_paddle.ones(list(shape)), mesh, [dist.Shard(1)])

    return make


def plain(value) -> bool:
    if isinstance(value, tuple):
        return all(plain(item) for item in value)
    return value is None or type(value) in (str, int, bool)


def test_a_dense_tensor(observer, real_paddle) -> None:
    tensor = real_paddle.ones([2, 4]).t()
    observation = observer.read(tensor)
    assert facts(observation) == {
        "shape": [4, 2],
        "dtype": "float32",
        "strides": [1, 4],
        "initialized": True,
        "stop_gradient": True,
    }
    assert has_value(observation)
    assert observer.read(tensor) == observation


def test_a_parameter_is_read_by_its_name_and_an_activation_is_not_given_one(observer, real_paddle) -> None:
    parameter = real_paddle.create_parameter([2], "float32")
    assert observer.read(parameter).parameter == parameter.name
    before = real_paddle.base.unique_name.generate("probe")
    assert observer.read(real_paddle.ones([2])).parameter is None
    after = real_paddle.base.unique_name.generate("probe")
    assert int(after.rpartition("_")[2]) == int(before.rpartition("_")[2]) + 1


def test_a_distributed_tensor(observer, distributed) -> None:
    observation = observer.read(distributed())
    assert observation.placements == ("Shard(1)",)
    assert observation.process_mesh == "[0] shape [1] axes mp"
    assert observation.local_shape == (2, 4)
    assert observation.strides is None


def test_an_observation_is_made_of_plain_values(observer, real_paddle, distributed) -> None:
    """Paddle's placements and meshes point into the tensor they were asked of, which may be gone when they are used."""
    for tensor in (real_paddle.ones([2]), real_paddle.create_parameter([2], "float32"), distributed()):
        assert plain(tuple(observer.read(tensor)))


def test_tensors_that_come_and_go_are_told_apart_and_not_kept(observer, distributed) -> None:
    gone = []
    seen = set()
    for extent in range(1, 200):
        tensor = distributed((2, extent))
        seen.add(observer.read(tensor))
        gone.append(weakref.ref(tensor))
        del tensor
    gc.collect()
    assert len(seen) == 199
    assert not any(reference() for reference in gone)
    assert len({observation.process_mesh for observation in seen}) == 1
    assert all(plain(key) for kept in vars(observer).values() if isinstance(kept, dict) for key in kept)


def test_what_is_no_tensor(observer, real_paddle) -> None:
    assert observer.read(None) is NOTHING
    assert observer.read(3) is NOTHING
    assert not observer.is_tensor([real_paddle.ones([1])])


def test_a_lazy_object_is_not_asked_what_it_is(observer) -> None:
    class Lazy:
        @property
        def __class__(self):
            raise AssertionError("resolved")

    assert not observer.is_tensor(Lazy())


def test_a_tensor_without_a_value(observer, real_paddle) -> None:
    tensor = real_paddle.ones([2, 4])
    tensor._clear_data()
    assert not has_value(observer.read(tensor))
    undefined = real_paddle.base.core.eager.Tensor()
    assert not has_value(observer.read(undefined))


def test_gradients(real_paddle) -> None:
    weight = real_paddle.create_parameter([2], "float32")
    assert grads(weight) == (False, False)
    (weight * 2).sum().backward()
    assert grads(weight) == (True, False)
    weight.main_grad = real_paddle.ones([2])
    assert grads(weight) == (True, True)
