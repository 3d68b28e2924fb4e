"""Constructor arguments of Gaussian-process classifiers, checked and turned into objects when a fit begins."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from posteriori.gp.inference import INFERENCES, Inference
from posteriori.gp.kernels import ARD, RBF, Constant, Kernel, Linear, Polynomial, RationalQuadratic
from posteriori.gp.output import ArgmaxNode
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

if TYPE_CHECKING:
    from posteriori.gp.likelihoods import Likelihood

__all__ = [
    "LIKELIHOODS",
    "GPSettings",
    "LikelihoodSettings",
    "default_kernel",
    "default_kernels",
    "fingerprint",
    "read_settings",
]

_REACH = 10.0
"""How far the default kernel's linear part reaches, in lengthscales: rows of a fit are about one from the centre."""
_SCALE = 5.0
"""The scale of the latents at which learning begins, with the default kernels."""
_FIRST_RATE = 0.01
"""The rate of mislabelled rows at the start, where it is learned."""
_NOT_THE_FIT = ("checkpoint", "verbose", "max_iter")
"""Parameters that may change between an interruption and going on."""


class LikelihoodSettings(Protocol):
    """The settings of a likelihood, from which it is made once the number of classes is known."""

    def of_classes(self, K: int) -> Likelihood:
        """The likelihood of K classes."""

    def probit_node(self, power: float) -> ArgmaxNode | None:
        """The multinomial probit that this likelihood is, whose sites `gp.coupled` finds; None where it is another."""


@dataclass(frozen=True)
class ArgmaxSettings:
    """The largest latent wins, with this variance of noise and this rate of mislabelled rows.

    Another noise is another model: by default it is one, whatever the power.
    """

    noise: float
    rate: float
    learn_rate: bool

    @classmethod
    def read(cls, noise: Any, mislabelling: Any, power: float) -> ArgmaxSettings:
        """The settings from checked parameters; raises where their combination cannot be integrated."""
        if power != 1.0 and mislabelling == 0.0 and noise == 0.0:
            raise ValueError(
                "mislabelling=0 with noise=0 makes log p(y | f) infinite somewhere: with power < 1 or 'vi' one of them "
                "must be positive."
            )
        learned = mislabelling == "learn"
        return cls(
            noise=1.0 if noise is None else float(noise),
            rate=_FIRST_RATE if learned else max(float(mislabelling), 1e-300),
            learn_rate=learned,
        )

    def of_classes(self, K: int) -> Likelihood:
        """The argmax likelihood of K classes."""
        from posteriori.gp.likelihoods import ArgmaxLikelihood

        return ArgmaxLikelihood(K, noise=self.noise, rate=self.rate, learn_rate=self.learn_rate)

    def probit_node(self, power: float) -> ArgmaxNode | None:
        """The multinomial probit, where noise is positive and nothing is learned of it."""
        probit = power == 1.0 and self.noise > 0.0 and not self.learn_rate
        return ArgmaxNode(self.noise, self.rate) if probit else None


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

    def probit_node(self, power: float) -> ArgmaxNode | None:
        """None: softmax is not the multinomial probit."""
        return None


LIKELIHOODS: dict[str, Callable[[Any, Any, float], LikelihoodSettings]] = {
    "argmax": ArgmaxSettings.read,
    "softmax": SoftmaxSettings.read,
}
"""Likelihoods by the names that users give: functions of noise, mislabelling and power that return settings."""


@dataclass(frozen=True)
class GPSettings:
    """The checked settings of a fit, whatever its data."""

    kernel: Kernel
    """The kernel of methods that do not choose."""
    kernels: Mapping[str, Kernel]
    """The kernels to choose among, by name."""
    scale: float
    """The scale of the latents at which learning begins."""
    inference: Inference
    likelihood: LikelihoodSettings
    power: float
    """The power that is used: zero for variational inference."""
    n_inducing: int | None
    """The number of inducing inputs; None for as many as the rows deserve."""
    n_learning: int | None
    """The number of rows that the kernel is learned from; None for as many as time allows."""
    batch_size: int | None
    learning_rate: float | None
    tol: float
    max_iter: int
    calibrate: bool
    seed: int


def read_settings(params: Mapping[str, Any]) -> GPSettings:
    """Check the constructor's parameters, by name, and turn them into settings."""
    kernels = _read_kernels(params["kernel"])
    kernel = default_kernel() if params["kernel"] is None else params["kernel"]
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
        kernels=kernels,
        scale=_read_scale(params["scale"], params["kernel"]),
        inference=inference,
        likelihood=likelihood,
        power=power,
        n_inducing=None if params["n_inducing"] == "auto" else int(params["n_inducing"]),
        n_learning=_read_learning(params["n_learning"]),
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


def default_kernels() -> dict[str, Kernel]:
    """The kernels that a fit chooses among: smooth functions, and such functions beside products of two features."""
    smooth = RationalQuadratic(1.0, ard=False, fixed=True) + Linear(1.0, reach=_REACH) + Constant(0.5)
    products = Linear(1.0, reach=_REACH) + Polynomial(1.0, reach=_REACH, degree=2) + Constant(0.5)
    return {"smooth": ARD(inner=smooth), "quadratic": RationalQuadratic() + ARD(inner=products)}


def _read_kernels(kernel: Any) -> dict[str, Kernel]:
    if kernel is None:
        return default_kernels()
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel={kernel!r} is not a kernel: use None, or a kernel of posteriori.kernels.")
    kernel.validate()
    return {"as given": kernel}


def _read_scale(scale: Any, kernel: Any) -> float:
    if scale is None:
        return _SCALE if kernel is None else 1.0
    if not is_number(scale) or not 0.0 < float(scale) < np.inf:
        raise ValueError(f"scale={scale!r} must be None or a positive number.")
    return float(scale)


def _read_learning(n_learning: Any) -> int | None:
    if n_learning is None:
        return None
    if isinstance(n_learning, str) and n_learning == "all":
        return sys.maxsize
    if isinstance(n_learning, str):
        raise ValueError(f"n_learning={n_learning!r} must be None, 'all', or a number of rows.")
    require_count("n_learning", n_learning, 2)
    return int(n_learning)


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
    n_inducing = params["n_inducing"]
    if isinstance(n_inducing, str) and n_inducing != "auto":
        raise ValueError(f"n_inducing={n_inducing!r} must be 'auto' or a number of inducing inputs.")
    if not isinstance(n_inducing, str):
        require_count("n_inducing", n_inducing, 1)
    require_count("max_iter", params["max_iter"], 0)
    require_count("batch_size", params["batch_size"], 1, none_allowed=True)
    require_not_negative("tol", params["tol"])
    if params["learning_rate"] is not None:
        require_not_negative("learning_rate", params["learning_rate"])


def fingerprint(name: str, params: Mapping[str, Any], *arrays: np.ndarray) -> str:
    """A digest of an estimator's name, its parameters and its rows: it tells which fit a checkpoint belongs to."""
    digest = hashlib.sha256()
    decisive = {key: value for key, value in params.items() if key not in _NOT_THE_FIT}
    digest.update(repr((name, sorted(decisive.items()))).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
