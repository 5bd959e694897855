"""The probe's parts are tested on the real Paddle that is installed beside pytest."""

from __future__ import annotations

import os
import warnings

import pytest


@pytest.fixture(scope="session")
def real_paddle():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Paddle's own, about a compiler cache that is not there
        module = pytest.importorskip("paddle", reason="no Paddle beside pytest")
        import paddle.distributed.fleet.utils  # noqa: F401, recompute comes with it
    module.set_device("cpu")
    return module
