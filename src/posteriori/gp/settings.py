"""Constructor arguments of Gaussian-process classifiers, checked when a fit begins."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from posteriori.gp.kernels import ARD, RBF, Constant, Kernel, Linear
from posteriori.parameters import is_number, seed_from
from posteriori.threads import one_blas_thread

__all__ = ["default_kernel", "fingerprint", "jax_at_work", "validate_gp"]

_LIKELIHOODS = ("argmax", "softmax")
_INFERENCES = ("ep", "energy", "vi")
_REACH = 10.0
"""In lengthscales: rows of a fit are about one from the centre."""


def default_kernel() -> Kernel:
    """RBF + linear + constant, on features that share their lengthscales; linear in the range of the data only."""
    return ARD(inner=RBF(1.0, ard=False, fixed=True) + Linear(1.0, reach=_REACH) + Constant(0.5))


def validate_gp(estimator: Any) -> None:
    """Raise unless the constructor's arguments make sense, whatever the data."""
    kernel = estimator.kernel
    if kernel is not None:
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel={kernel!r} is no kernel: use None, or those of posteriori.kernels.")
        kernel.validate()
    for name, allowed in (("likelihood", _LIKELIHOODS), ("inference", _INFERENCES)):
        value = getattr(estimator, name)
        if not (isinstance(value, str) and value in allowed):
            raise ValueError(f"{name}={value!r} is unknown: use one of {[*allowed]}.")
    power = estimator.power
    if not is_number(power) or not 0.0 < float(power) <= 1.0:
        raise ValueError(f"power={power!r} must lie in (0, 1]; its limit 0 is inference='vi'.")
    if estimator.inference == "vi" and power != 1.0:
        raise ValueError(f"power={power!r} has no meaning with inference='vi': leave it out.")
    rate = estimator.mislabelling
    if not (rate == "learn" if isinstance(rate, str) else is_number(rate) and 0.0 <= float(rate) < 0.5):
        raise ValueError(f"mislabelling={rate!r} must be a rate from 0 to below 0.5, or 'learn'.")
    noise = estimator.noise
    if noise is not None and not (is_number(noise) and 0.0 <= float(noise) < np.inf):
        raise ValueError(f"noise={noise!r} must be None or a variance that is not negative.")
    if estimator.likelihood == "softmax" and noise:
        raise ValueError(f"noise={noise!r} is for likelihood='argmax': softmax needs none, leave it out.")
    fractional = estimator.inference == "vi" or power < 1.0
    if estimator.likelihood == "argmax" and fractional:
        if noise is not None and noise > 0.0:
            raise ValueError(
                "The argmax likelihood with noise is integrated exactly at power 1 only: use inference='ep' or "
                "'energy' with power=1, noise=0, or likelihood='softmax'."
            )
        if rate == 0.0:
            raise ValueError(
                "mislabelling=0 makes log p(y | f) infinite somewhere: with power < 1 or 'vi' it must be positive."
            )
    for name, least in (("n_inducing", 1), ("max_iter", 0)):
        value = getattr(estimator, name)
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")
    size = estimator.batch_size
    if size is not None and (not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1):
        raise ValueError(f"batch_size={size!r} must be None or a whole number of at least 1.")
    for name in ("learning_rate", "tol"):
        value = getattr(estimator, name)
        if name == "learning_rate" and value is None:
            continue
        if not is_number(value) or not 0.0 <= float(value) < np.inf:
            raise ValueError(f"{name}={value!r} must be a number that is not negative.")
    if not isinstance(estimator.calibrate, (bool, np.bool_)):
        raise ValueError(f"calibrate={estimator.calibrate!r} must be True or False.")
    device = estimator.device
    if not (device is None or (isinstance(device, str) and device in ("cpu", "gpu"))):
        raise ValueError(f"device={estimator.device!r} is unknown: use None, 'cpu' or 'gpu'.")
    if not isinstance(estimator.verbose, (bool, int, np.integer)):
        raise ValueError(f"verbose={estimator.verbose!r} must be a whole number.")
    seed_from(estimator.random_state)


@contextmanager
def jax_at_work(device: str | None) -> Iterator[None]:
    """JAX in double precision, on the device asked for, and BLAS in one thread; afterwards all is as it was."""
    try:
        import jax
        import optax  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Gaussian processes need JAX and optax ({error.name} is missing): pip install 'posteriori[gp]'."
        ) from None
    try:
        where = None if device is None else jax.devices(device)[0]
    except RuntimeError:
        raise ValueError(f"device={device!r} is not available: JAX has {jax.devices()[0].platform!r} only.") from None
    with jax.enable_x64(True), jax.default_device(where), one_blas_thread():
        yield


def fingerprint(estimator: Any, *arrays: np.ndarray) -> str:
    """Of settings and rows: which fit a checkpoint belongs to."""
    digest = hashlib.sha256()
    params = {name: value for name, value in estimator.get_params(deep=False).items() if name not in _NOT_THE_FIT}
    digest.update(repr((type(estimator).__name__, sorted(params.items()))).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


_NOT_THE_FIT = ("checkpoint", "verbose", "max_iter")
"""Parameters that may change between an interruption and going on."""
