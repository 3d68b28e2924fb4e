"""Methods of inference by name: how sites are found, in one layer and in a stack of layers.

This module does not need JAX; a fit imports it when it begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from posteriori.gp.inputs import LabelledRows, typical_distance
from posteriori.gp.kernels import Kernel
from posteriori.gp.session import jax_session
from posteriori.threads import one_blas_thread

if TYPE_CHECKING:
    from posteriori.gp.ascent import FitOptions
    from posteriori.gp.output import ArgmaxNode
    from posteriori.gp.predictions import FittedLatents
    from posteriori.gp.settings import LikelihoodSettings

__all__ = [
    "INFERENCES",
    "EnergyMaximisation",
    "ExpectationPropagation",
    "GPProblem",
    "Inference",
    "VariationalInference",
]

_MOST_OPERATIONS = 8e10
"""The operations that one sweep over all rows may take without inducing inputs: a second or two."""
_INDUCING_OPERATIONS = 1.2e10
"""The operations that one sweep over all rows may take for each class, seen through inducing inputs."""
_FEWEST_INDUCING, _MOST_INDUCING = 200, 1000


@dataclass(frozen=True)
class GPProblem:
    """The problem of a fit: standardised rows, and the kernels, likelihood and size of the layer that it reads."""

    rows: LabelledRows
    kernel: Kernel
    """The kernel of methods that do not choose."""
    kernels: Mapping[str, Kernel]
    """The kernels to choose among, by name."""
    scale: float
    """The scale of the latents at which learning begins."""
    likelihood: LikelihoodSettings
    n_classes: int
    n_inducing: int | None
    """The number of inducing inputs; None for as many as the rows deserve."""


class Inference(Protocol):
    """A method of inference: how the sites of a layer are found, alone or above hidden layers."""

    @property
    def has_posterior(self) -> bool:
        """Whether the latents' variances and the energy mean something, and not the probabilities alone."""

    def used_power(self, power: float) -> float:
        """The power of the factors for the `power` that a user gives; raises where that has no meaning."""

    def fit_layer(self, problem: GPProblem, options: FitOptions) -> FittedLatents:
        """Fit a single layer."""

    def fit_stack(
        self, problem: GPProblem, options: FitOptions, widths: tuple[int, ...], n_samples: int
    ) -> FittedLatents:
        """Fit a layer above hidden layers of these widths, with so many samples of every row."""


class ExpectationPropagation:
    """Power EP: a site for every row in a single layer; in a stack, averages of such sites."""

    has_posterior = True

    def used_power(self, power: float) -> float:
        """The power as given."""
        return power

    def fit_layer(self, problem: GPProblem, options: FitOptions) -> FittedLatents:
        """Fit a single layer with row sites: by NumPy where it can be, else by JAX."""
        node = problem.likelihood.probit_node(options.power)
        if node is not None and options.device != "gpu" and options.checkpoint is None:
            with one_blas_thread():  # classes have threads of ours
                fitted = _fit_probit(problem, options, node)
            if fitted is not None:
                return fitted
        with jax_session(options.device):
            from posteriori.gp.fit import fit_row_sites

            return fit_row_sites(problem, options)

    def fit_stack(
        self, problem: GPProblem, options: FitOptions, widths: tuple[int, ...], n_samples: int
    ) -> FittedLatents:
        """Fit a stack whose last sites are averages of the rows' natural parameters."""
        with jax_session(options.device):
            from posteriori.gp.fit import fit_tied_sites

            return fit_tied_sites(problem, options, widths, n_samples=n_samples, averaged=True)


class VariationalInference:
    """The limit of power EP at power zero, whose energy is a lower bound on the log evidence."""

    has_posterior = True

    def used_power(self, power: float) -> float:
        """The power zero; raises where another power is given, which has no meaning."""
        if power != 1.0:
            raise ValueError(f"power={power!r} has no meaning with inference='vi': leave it out.")
        return 0.0

    def fit_layer(self, problem: GPProblem, options: FitOptions) -> FittedLatents:
        """Fit a single layer with row sites at power zero."""
        with jax_session(options.device):
            from posteriori.gp.fit import fit_row_sites

            return fit_row_sites(problem, options)

    def fit_stack(
        self, problem: GPProblem, options: FitOptions, widths: tuple[int, ...], n_samples: int
    ) -> FittedLatents:
        """Fit a stack whose beliefs all follow the gradient of the bound."""
        with jax_session(options.device):
            from posteriori.gp.fit import fit_tied_sites

            return fit_tied_sites(problem, options, widths, n_samples=n_samples, averaged=False)


class EnergyMaximisation:
    """The power-EP energy of sites that all rows share, maximised by gradient (black-box alpha).

    A single layer is a stack without hidden layers here: it has no row sites. The maximum over its sites is too wide,
    so that only its probabilities are of use.
    """

    has_posterior = False

    def used_power(self, power: float) -> float:
        """The power as given."""
        return power

    def fit_layer(self, problem: GPProblem, options: FitOptions) -> FittedLatents:
        """Fit a single layer with one shared site, as a stack that has no hidden layers."""
        return self.fit_stack(problem, options, (), n_samples=1)

    def fit_stack(
        self, problem: GPProblem, options: FitOptions, widths: tuple[int, ...], n_samples: int
    ) -> FittedLatents:
        """Fit a stack whose beliefs all follow the gradient of the energy."""
        with jax_session(options.device):
            from posteriori.gp.fit import fit_tied_sites

            return fit_tied_sites(problem, options, widths, n_samples=n_samples, averaged=False)


INFERENCES: dict[str, Inference] = {
    "ep": ExpectationPropagation(),
    "energy": EnergyMaximisation(),
    "vi": VariationalInference(),
}
"""The methods of inference by the names that users give."""


def _fit_probit(problem: GPProblem, options: FitOptions, node: ArgmaxNode) -> FittedLatents | None:
    """Fit the multinomial probit: with all distinct rows while that is affordable, else with inducing inputs.

    None where fewer inducing inputs are given than there are distinct rows: they are learned. None also where a kernel
    has no derivatives written out.
    """
    from posteriori.gp import all_rows, inducing
    from posteriori.gp.choosing import LearningPlan, learn_kernel
    from posteriori.gp.progress import sweep_cost
    from posteriori.gp.repeats import merged_rows

    if not all(_has_slopes(kernel, problem.rows.X[:2]) for kernel in problem.kernels.values()):
        return None
    merged = merged_rows(problem.rows, options.seed)
    rows, K = merged.rows, problem.n_classes
    n = len(rows.y)
    if problem.n_inducing is not None and problem.n_inducing < len(np.unique(rows.X, axis=0)):
        return None
    whole = problem.n_inducing is not None or (0.5 if K == 2 else K) * 2.0 * n**3 <= _MOST_OPERATIONS
    M = int(np.clip(np.sqrt(_INDUCING_OPERATIONS / n), _FEWEST_INDUCING, _MOST_INDUCING))
    later = all_rows.USUAL_SWEEPS * sweep_cost(n, K)
    if not whole:
        later = inducing.USUAL_SWEEPS * inducing.inducing_cost(n, M, K)
    plan = LearningPlan(options.tol, options.max_iter, options.n_learning, options.seed, options.report, later)
    start_scale = problem.scale / np.sqrt(node.noise)
    typical = typical_distance(rows.X, options.seed)
    chosen = learn_kernel(problem.kernels, rows, K, node.rate, start_scale, typical, plan)
    if whole:
        return all_rows.fit_all_rows(chosen, merged, node, calibrate=options.calibrate, report=options.report)
    state = replace(chosen.state, log_scale=chosen.state.log_scale + 0.5 * np.log(node.noise))
    return inducing.fit_inducing(
        chosen, state, merged, node, M, options.seed, calibrate=options.calibrate, report=options.report
    )


def _has_slopes(kernel: Kernel, X: np.ndarray) -> bool:
    """Whether a kernel has its derivatives written out; JAX finds those of any other."""
    try:
        kernel.slopes(kernel.start(X.shape[1], 1.0), X, np.eye(len(X)))
    except NotImplementedError:
        return False
    return True
