"""Methods of inference by name: how sites are found, in one layer and in a stack of layers.

This module does not need JAX; a fit imports it when it begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from posteriori.gp.inputs import LabelledRows
from posteriori.gp.kernels import Kernel

if TYPE_CHECKING:
    from posteriori.gp.fit import FitOptions
    from posteriori.gp.likelihoods import Likelihood
    from posteriori.gp.predictive import FittedLatents

__all__ = [
    "INFERENCES",
    "EnergyMaximisation",
    "ExpectationPropagation",
    "GPProblem",
    "Inference",
    "VariationalInference",
]


@dataclass(frozen=True)
class GPProblem:
    """The problem of a fit: standardised rows, and the kernel, likelihood and size of the layer that it reads."""

    rows: LabelledRows
    kernel: Kernel
    likelihood: Likelihood
    n_classes: int
    n_inducing: int


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
        """Fit a single layer with row sites."""
        from posteriori.gp.fit import fit_row_sites

        return fit_row_sites(problem, options)

    def fit_stack(
        self, problem: GPProblem, options: FitOptions, widths: tuple[int, ...], n_samples: int
    ) -> FittedLatents:
        """Fit a stack whose last sites are averages of the rows' natural parameters."""
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
        from posteriori.gp.fit import fit_row_sites

        return fit_row_sites(problem, options)

    def fit_stack(
        self, problem: GPProblem, options: FitOptions, widths: tuple[int, ...], n_samples: int
    ) -> FittedLatents:
        """Fit a stack whose beliefs all follow the gradient of the bound."""
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
        from posteriori.gp.fit import fit_tied_sites

        return fit_tied_sites(problem, options, widths, n_samples=n_samples, averaged=False)


INFERENCES: dict[str, Inference] = {
    "ep": ExpectationPropagation(),
    "energy": EnergyMaximisation(),
    "vi": VariationalInference(),
}
"""The methods of inference by the names that users give."""
