"""Constructor arguments of Gaussian-process classifiers, checked and turned into objects when a fit begins."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from posteriori.gp.inference import INFERENCES, Inference
from posteriori.gp.kernels import ARD, RBF, Constant, Kernel, Linear
from posteriori.parameters import (
    is_number,
    require_choice,
    require_count,
    require_device,
    require_flag,
    require_not_negative,
    require_verbosity,
    seed_from,
)
from posteriori.threads import one_blas_thread

if TYPE_CHECKING:
    from posteriori.gp.likelihoods import Likelihood

__all__ = [
    "LIKELIHOODS",
    "GPSettings",
    "LikelihoodSettings",
    "default_kernel",
    "fingerprint",
    "jax_session",
    "read_settings",
]

_JAX_PROCESS: dict[str, int] = {}
"""The id of the process in which JAX was first used here; a forked process inherits it."""
_REACH = 10.0
"""How far the default kernel's linear part reaches, in lengthscales: rows of a fit are about one from the centre."""
_FIRST_RATE = 0.01
"""The rate of mislabelled rows at the start, where it is learned."""
_NOT_THE_FIT = ("checkpoint", "verbose", "max_iter")
"""Parameters that may change between an interruption and going on."""


class LikelihoodSettings(Protocol):
    """The settings of a likelihood, from which it is made once the number of classes is known."""

    def of_classes(self, K: int) -> Likelihood:
        """The likelihood of K classes."""


@dataclass(frozen=True)
class ArgmaxSettings:
    """The largest latent wins, with this variance of noise and this rate of mislabelled rows."""

    noise: float
    rate: float
    learn_rate: bool

    @classmethod
    def read(cls, noise: Any, mislabelling: Any, power: float) -> ArgmaxSettings:
        """The settings from checked parameters; raises where their combination cannot be integrated."""
        if power != 1.0:
            if noise is not None and noise > 0.0:
                raise ValueError(
                    "The argmax likelihood with noise is integrated exactly at power 1 only: use inference='ep' or "
                    "'energy' with power=1, noise=0, or likelihood='softmax'."
                )
            if mislabelling == 0.0:
                raise ValueError(
                    "mislabelling=0 makes log p(y | f) infinite somewhere: with power < 1 or 'vi' it must be positive."
                )
        learned = mislabelling == "learn"
        return cls(
            noise=(1.0 if power == 1.0 else 0.0) if noise is None else float(noise),
            rate=_FIRST_RATE if learned else max(float(mislabelling), 1e-300),
            learn_rate=learned,
        )

    def of_classes(self, K: int) -> Likelihood:
        """The argmax likelihood of K classes."""
        from posteriori.gp.likelihoods import ArgmaxLikelihood

        return ArgmaxLikelihood(K, noise=self.noise, rate=self.rate, learn_rate=self.learn_rate)


@dataclass(frozen=True)
class SoftmaxSettings:
    """Class probabilities are the softmax of the latents: there is nothing to set."""

    @classmethod
    def read(cls, noise: Any, mislabelling: Any, power: float) -> SoftmaxSettings:
        """The settings from checked parameters; raises where noise is given."""
        if noise:
            raise ValueError(f"noise={noise!r} is for likelihood='argmax': softmax needs none, leave it out.")
        return cls()

    def of_classes(self, K: int) -> Likelihood:
        """The softmax likelihood of K classes."""
        from posteriori.gp.likelihoods import SoftmaxLikelihood

        return SoftmaxLikelihood(K)


LIKELIHOODS: dict[str, Callable[[Any, Any, float], LikelihoodSettings]] = {
    "argmax": ArgmaxSettings.read,
    "softmax": SoftmaxSettings.read,
}
"""Likelihoods by the names that users give: functions of noise, mislabelling and power that return settings."""


@dataclass(frozen=True)
class GPSettings:
    """The checked settings of a fit, whatever its data."""

    kernel: Kernel
    inference: Inference
    likelihood: LikelihoodSettings
    power: float
    """The power that is used: zero for variational inference."""
    n_inducing: int
    batch_size: int | None
    learning_rate: float | None
    tol: float
    max_iter: int
    calibrate: bool
    seed: int


def read_settings(params: Mapping[str, Any]) -> GPSettings:
    """Check the constructor's parameters, by name, and turn them into settings."""
    kernel = _read_kernel(params["kernel"])
    require_choice("likelihood", params["likelihood"], LIKELIHOODS)
    require_choice("inference", params["inference"], INFERENCES)
    inference = INFERENCES[params["inference"]]
    power = inference.used_power(_read_power(params["power"]))
    _require_rate(params["mislabelling"])
    _require_noise(params["noise"])
    likelihood = LIKELIHOODS[params["likelihood"]](params["noise"], params["mislabelling"], power)
    _require_schedule(params)
    require_flag("calibrate", params["calibrate"])
    require_device(params["device"])
    require_verbosity(params["verbose"])
    rate = params["learning_rate"]
    return GPSettings(
        kernel=kernel,
        inference=inference,
        likelihood=likelihood,
        power=power,
        n_inducing=int(params["n_inducing"]),
        batch_size=None if params["batch_size"] is None else int(params["batch_size"]),
        learning_rate=None if rate is None else float(rate),
        tol=float(params["tol"]),
        max_iter=int(params["max_iter"]),
        calibrate=bool(params["calibrate"]),
        seed=seed_from(params["random_state"]),
    )


def default_kernel() -> Kernel:
    """RBF + linear + constant, on features that share their lengthscales; linear in the range of the data only."""
    return ARD(inner=RBF(1.0, ard=False, fixed=True) + Linear(1.0, reach=_REACH) + Constant(0.5))


def _read_kernel(kernel: Any) -> Kernel:
    if kernel is None:
        return default_kernel()
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel={kernel!r} is not a kernel: use None, or a kernel of posteriori.kernels.")
    kernel.validate()
    return kernel


def _read_power(power: Any) -> float:
    if not is_number(power) or not 0.0 < float(power) <= 1.0:
        raise ValueError(f"power={power!r} must be above 0 and at most 1; for power 0 use inference='vi'.")
    return float(power)


def _require_rate(rate: Any) -> None:
    if not (rate == "learn" if isinstance(rate, str) else is_number(rate) and 0.0 <= float(rate) < 0.5):
        raise ValueError(f"mislabelling={rate!r} must be a rate from 0 to below 0.5, or 'learn'.")


def _require_noise(noise: Any) -> None:
    if noise is not None and not (is_number(noise) and 0.0 <= float(noise) < np.inf):
        raise ValueError(f"noise={noise!r} must be None or a variance that is not negative.")


def _require_schedule(params: Mapping[str, Any]) -> None:
    """Check the parameters that say how many inducing inputs, rows and steps there are, and how long these are."""
    require_count("n_inducing", params["n_inducing"], 1)
    require_count("max_iter", params["max_iter"], 0)
    require_count("batch_size", params["batch_size"], 1, none_allowed=True)
    require_not_negative("tol", params["tol"])
    if params["learning_rate"] is not None:
        require_not_negative("learning_rate", params["learning_rate"])


@contextmanager
def jax_session(device: str | None) -> Iterator[None]:
    """Run JAX in double precision on this device, and BLAS in one thread; afterwards all is as it was."""
    try:
        import jax
        import optax  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Gaussian processes need JAX and optax ({error.name} is missing): pip install 'posteriori[gp]'."
        ) from None
    _require_own_jax()
    try:
        where = None if device is None else jax.devices(device)[0]
    except RuntimeError:
        raise ValueError(f"device={device!r} is not available: JAX has {jax.devices()[0].platform!r} only.") from None
    with jax.enable_x64(True), jax.default_device(where), one_blas_thread():
        yield


def _require_own_jax() -> None:
    """Raise in a process that was forked from one that had used JAX: its threads are not here, and JAX would wait."""
    if _JAX_PROCESS.setdefault("id", os.getpid()) != os.getpid():
        raise RuntimeError(
            "This process was forked from one that had already used JAX, whose threads did not come along: a Gaussian "
            "process would wait for them forever. Start processes with multiprocessing.get_context('spawn') or "
            "'forkserver', or with joblib, whose processes are new ones."
        )


def fingerprint(name: str, params: Mapping[str, Any], *arrays: np.ndarray) -> str:
    """A digest of an estimator's name, its parameters and its rows: it tells which fit a checkpoint belongs to."""
    digest = hashlib.sha256()
    decisive = {key: value for key, value in params.items() if key not in _NOT_THE_FIT}
    digest.update(repr((name, sorted(decisive.items()))).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
