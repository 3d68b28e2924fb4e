"""The record of a fit of Gaussian processes: how it ended, and what was chosen on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from posteriori.solvers.solution import FitRecord, Status

__all__ = ["Chunk", "GPSolution"]


class Chunk(NamedTuple):
    """One entry of an ascent's trace: steps taken, the energy, the learning rate, and the seconds since it began."""

    n_steps: int
    energy: float
    rate: float
    seconds: float


@dataclass(frozen=True)
class GPSolution(FitRecord):
    """The record of a fit of Gaussian processes.

    Attributes
    ----------
    status : Status
    energy : float
        The energy at the end; for expectation propagation the approximate log evidence.
    n_iter : int
        Steps of learning.
    n_passes : float
        Passes over all rows, the last sweeps included.
    jitter : float
        What was added to the diagonal of the inducing inputs' kernel matrix, in units of its mean.
    settled : bool or None
        Whether the sites came to their fixed point; None where there is none.
    trace : list of Chunk
        Energy, learning rate and seconds along the way.
    kernel : str
        The name of the kernel that was chosen; "as given" for one that the user gave.
    considered : mapping
        The kernels that were compared, by name: their energies on the same rows, log-priors included.
    n_inducing : int or None
        The number of inducing inputs: all distinct rows, or fewer. None in files of earlier versions.
    n_learning : int or None
        The number of rows that the kernel was learned from, at the end.
    n_copies : int
        The number of rows left out as copies of others: identical in every column and in the label.
    log_length, log_scale : float
        The logarithms of the factors by which left-out rows changed all lengthscales and all scales that the evidence
        had chosen; zero nearly always.
    """

    status: Status
    energy: float
    n_iter: int
    n_passes: float
    jitter: float
    settled: bool | None = None
    trace: list[Chunk] = field(default_factory=list, repr=False)
    kernel: str = "as given"
    considered: Mapping[str, float] = field(default_factory=dict)
    n_inducing: int | None = None
    n_learning: int | None = None
    n_copies: int = 0
    log_length: float = 0.0
    log_scale: float = 0.0

    @property
    def objective(self) -> float:
        """Minus the energy: the number that the fit made small."""
        return -self.energy

    @property
    def seconds(self) -> float | None:
        """Time that learning took; None where nothing was learned."""
        return self.trace[-1].seconds if self.trace else None
