r"""What the class probabilities of rows may be, over the posterior of all parameters.

Quantiles and entropies are of a row by itself (`row_draws`). Draws of the parameters are the same for all rows,

.. math:: (\mu, \Sigma, \pi)^s \sim p(\mu, \Sigma, \pi \mid \text{rows of the fit}), \qquad
          p^s(k \mid x) \propto \pi_k^s\, N(x;\, \mu_k^s, \Sigma_k^s) ,

and the mean of p^s(k | x) is not quite the predictive p(k | x), which also takes x itself for a row that says something
about the parameters; where rows are many the two are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.decision.uncertainty import entropy
from posteriori.gaussian.densities import ClassDensities, class_densities, log_joint, within_reach
from posteriori.gaussian.niw import Belief
from posteriori.gaussian.structures import STRUCTURES
from posteriori.maths.softmax import log_softmax_in_place, softmax_in_place
from posteriori.rows.products import as_dense

__all__ = [
    "ParameterDraws",
    "RowPosterior",
    "drawn_entropies",
    "drawn_log_probabilities",
    "drawn_quantiles",
    "parameter_draws",
]

_FEWEST_DRAWS = 128
_NUMBERS_OF_A_ROW = 1 << 18
"""Numbers that all draws of one row may take: fewer draws are made where features or classes are very many."""

_NUMBERS_AT_ONCE = 1 << 20
"""Numbers that the draws of some rows may take while they are made."""
_MOST_NUMBERS = 1 << 28
"""Numbers that all drawn covariances may have together."""


@dataclass(frozen=True)
class RowPosterior:
    """The belief about the classes, from which the probabilities of rows are drawn.

    Attributes
    ----------
    densities : ClassDensities
        The densities with all parameters integrated out.
    belief : Belief
        About the coordinates of the densities, divided by `unit`.
    unit : ndarray (D,), or (r + 1,) in a row space
    concentrations : ndarray (K,) or None
        Of the Dirichlet that is believed of the class frequencies; None where these are given.
    """

    densities: ClassDensities
    belief: Belief
    unit: np.ndarray
    concentrations: np.ndarray | None


def drawn_quantiles(X: Any, posterior: RowPosterior, n_draws: int, levels: tuple[float, ...]) -> np.ndarray:
    """Quantiles of each class probability, (len(levels) K, n), one level after the other."""

    def ends(P: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return np.concatenate(np.quantile(P, levels, axis=0, method="hazen"))

    return _by_parts(X, posterior, n_draws, ends)


def drawn_entropies(X: Any, posterior: RowPosterior, n_draws: int) -> np.ndarray:
    """Total entropy H[E p] and aleatoric entropy E[H p] in nats, (2, n)."""

    def parts(P: np.ndarray, mean: np.ndarray) -> np.ndarray:
        total = np.maximum(entropy(mean, axis=0), 0.0)
        return np.stack([total, np.minimum(entropy(P, axis=1).mean(axis=0), total)])

    return _by_parts(X, posterior, n_draws, parts)


def _by_parts(X: Any, posterior: RowPosterior, n_draws: int, function: Any) -> np.ndarray:
    """The function of draws (S, K, n) and of their mean (K, n), for some rows at a time."""
    K, D = posterior.belief.means.shape
    width = K + posterior.belief.structure.drawn_width(K, D)
    n_draws = max(min(n_draws, _NUMBERS_OF_A_ROW // width), _FEWEST_DRAWS)
    step = max(1, _NUMBERS_AT_ONCE // (n_draws * width))
    with np.errstate(over="ignore", invalid="ignore"):
        found = [
            function(*_drawn(within_reach(as_dense(X[start : start + step]), posterior.densities), posterior, n_draws))
            for start in range(0, X.shape[0], step)
        ]
    return np.concatenate(found, axis=1)


def _drawn(X: np.ndarray, posterior: RowPosterior, n_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the class probabilities, (S, K, n), and their mean over all parameters, (K, n).

    The generator begins anew for all rows, so that a row's draws do not depend on the rows beside it.
    """
    rng = np.random.default_rng(0)
    mean = _known_logits(log_joint(X, posterior.densities), posterior)
    softmax_in_place(mean)
    # as many draws of each class as its probability says: one for each step of the cumulative probabilities
    steps = (np.arange(n_draws) + 0.5) / n_draws
    h = (mean.cumsum(axis=0)[:-1, None, :] <= steps[:, None]).sum(axis=0)
    Z = posterior.densities.coordinates(X) / posterior.unit
    logits = posterior.belief.structure.drawn_log_densities(Z, posterior.belief, h, rng)
    logits = _known_logits(logits + _drawn_log_frequencies(posterior, h, rng), posterior)
    P = logits.transpose(1, 0, 2).reshape(len(mean), -1)
    softmax_in_place(P)
    return P.reshape(len(mean), n_draws, -1).transpose(1, 0, 2), mean


def _known_logits(logits: np.ndarray, posterior: RowPosterior) -> np.ndarray:
    """Logits (..., K, n); where distances are beyond all numbers, they are those of the class frequencies alone."""
    unknown = np.isnan(logits) | ~np.isfinite(logits.max(axis=-2, keepdims=True))
    return np.where(unknown, posterior.densities.log_prior[:, None], logits)


def _drawn_log_frequencies(posterior: RowPosterior, h: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws of log pi_k up to a number for each draw and row, (S, K, n), after the row as one of class h.

    Frequencies of a Dirichlet are gamma variables over their sum; one more row adds an exponential variable.
    """
    if posterior.concentrations is None:
        return posterior.densities.log_prior[None, :, None]
    K = len(posterior.concentrations)
    before = rng.standard_gamma(posterior.concentrations, (len(h), K))
    after = before + rng.standard_exponential((len(h), K))
    mine = h[:, None, :] == np.arange(K)[:, None]
    with np.errstate(divide="ignore"):
        return np.log(np.where(mine, after[:, :, None], before[:, :, None]))


# Draws of the parameters


@dataclass(frozen=True)
class ParameterDraws:
    """Draws of the parameters, in the coordinates of a belief.

    Attributes
    ----------
    posterior : RowPosterior
        The belief that they are drawn from, about (x - origin) / unit of all features.
    means : ndarray (S, K, D)
    covariances : ndarray (S, J, ...)
        Each of the shape that the structure keeps.
    log_frequencies : ndarray (S, K)
    """

    posterior: RowPosterior
    means: np.ndarray
    covariances: np.ndarray
    log_frequencies: np.ndarray

    def variables(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Means, covariances and class probabilities in the units of the data, with the names of their dimensions.

        Class probabilities are left out where they are given.
        """
        structure, unit = self.posterior.belief.structure, self.posterior.unit
        one = np.ones((1, 1))
        covariances = np.stack([structure.covariances(Sigma, one, unit) for Sigma in self.covariances])
        shared = 0 if structure.tied else 1
        axes = ("feature", "other_feature")[: covariances.ndim - 1 - shared]
        found = {
            "mean": (("class", "feature"), self.means * unit + self.posterior.densities.origin),
            "covariance": ((*("class",)[:shared], *axes), covariances),
        }
        if self.posterior.concentrations is not None:
            found["class_probability"] = (("class",), np.exp(self.log_frequencies))
        return found


def parameter_draws(posterior: RowPosterior, n_draws: int, rng: np.random.Generator) -> ParameterDraws:
    """Draw means, covariances and class frequencies from what is believed of them."""
    posterior = _about_features(posterior)
    belief, a = posterior.belief, posterior.concentrations
    _require_room(n_draws * belief.Psi.size, belief)
    means, covariances = belief.structure.drawn_parameters(belief, n_draws, rng)
    if a is None:
        log_pi = np.broadcast_to(posterior.densities.log_prior, (n_draws, len(belief.means)))
    else:
        with np.errstate(divide="ignore"):
            log_pi = np.log(rng.dirichlet(a, n_draws))
    return ParameterDraws(posterior, means, covariances, log_pi)


def drawn_log_probabilities(X: Any, draws: ParameterDraws) -> np.ndarray:
    """Logarithms of p(k | x) under each of S draws, (S K, n), one draw after the other."""
    posterior = draws.posterior
    belief, origin, scale = posterior.belief, posterior.densities.origin, 1.0 / posterior.unit
    K, J = len(belief.means), len(belief.Psi)
    rows = within_reach(as_dense(X), posterior.densities)
    out = np.empty((len(draws.means), K, len(rows)))
    for s, (means, Sigma) in enumerate(zip(draws.means, draws.covariances, strict=True)):
        known = Belief(belief.structure, belief.kappa, means, np.ones((J, 1)), Sigma)
        F = log_joint(rows, class_densities(known, "mle", draws.log_frequencies[s], origin, scale))
        out[s] = log_softmax_in_place(F)
    return out.reshape(-1, len(rows))


def _about_features(posterior: RowPosterior) -> RowPosterior:
    """The belief about all features, where it is held in the space of few rows."""
    space, belief = posterior.densities.space, posterior.belief
    if space is None:
        return posterior
    _require_room(len(belief.Psi) * len(space.unit) ** 2, belief)
    structure = STRUCTURES[posterior.densities.structure]
    Psi = np.stack([space.matrix(M) for M in belief.Psi])
    about = Belief(structure, belief.kappa, space.points(belief.means), belief.nu, Psi)
    return RowPosterior(posterior.densities, about, np.ones(len(space.unit)), posterior.concentrations)


def _require_room(size: int, belief: Belief) -> None:
    if size > _MOST_NUMBERS:
        raise ValueError(
            f"Draws of the covariances ({belief.structure.name!r}) would take {8 * size / 2**30:.1f} GiB: ask for "
            "fewer draws, or use covariance='diagonal'."
        )
