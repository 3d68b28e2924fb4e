"""What people read of a fitted Bayesian model: tables of coefficients and effects, and a few lines of facts."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.utils.validation import check_is_fitted

from posteriori.parameters import require_choice, require_level
from posteriori.rows.blocks import Blocks
from posteriori.rows.extremes import extremes
from posteriori.softmax.bayesian_settings import prior_from
from posteriori.softmax.covariance import CovarianceInBasis
from posteriori.softmax.predictive import drawn_moments, effect_slopes, weighted_sums
from posteriori.softmax.sandwich import Estimate, RowsAgain, blocks_again, standard_errors
from posteriori.solvers.solution import Status
from posteriori.threads import one_blas_thread

if TYPE_CHECKING:
    import pandas as pd

    from posteriori.softmax.bayesian import BayesianSoftmaxRegression

__all__ = ["CoefficientTables", "as_html", "as_text", "facts"]

_EFFECT_DRAWS = 400
_STILL = 1e-5
"""Share of its standard error by which a coefficient may seem to move along a free direction, by rounding."""
_MOST_ROWS = 40
"""Coefficients shown; summary() has them all."""
_MOST_BLOCKS = 6
"""Blocks of columns shown; block_precisions_ has them all."""


class CoefficientTables:
    """The tables of a fitted Bayesian model, as methods."""

    def summary(
        self,
        coding: str = "symmetric",
        level: float = 0.95,
        reference: Any = None,
        *,
        errors: str = "posterior",
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> pd.DataFrame:
        """Table of coefficients: class, feature, mean, sd, interval, and the probability that the sign is right.

        With a flat prior or robust errors there are also z = mean / sd and its two-sided p-value. Where classes are
        separated and no prior holds the coefficients back, standard errors are infinite.

        Parameters
        ----------
        coding : {"symmetric", "reference", "sum"}, default "symmetric"
            Weights as the model has them; against those of the class `reference` (the first, unless given); or against
            their mean over classes.
        level : float, default 0.95
        reference : class, optional
        errors : {"posterior", "HC0", "HC1", "cluster"}, default "posterior"
            Standard deviations of the posterior; or errors of the mode that hold where the model is wrong, by the
            sandwich H^{-1} M H^{-1} (`posteriori.softmax.sandwich`): for independent rows, or for groups of rows.
        X, y, sample_weight : optional
            The rows of the fit again, for robust errors: the model does not keep them. As in `fit`.
        groups : array-like (n,) or the name of a column of X, optional
            The group of each row, for errors="cluster".
        """
        rows = RowsAgain(X, y, sample_weight, groups)
        return _summary(_checked(self), coding, require_level(level), reference, errors, rows)

    def contrast(
        self,
        first: Any,
        second: Any,
        level: float = 0.95,
        *,
        errors: str = "posterior",
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> pd.DataFrame:
        """Table of the coefficients of log p(first) / p(second); errors, groups and all others as in `summary`."""
        rows = RowsAgain(X, y, sample_weight, groups)
        return _contrast(_checked(self), first, second, require_level(level), errors, rows)

    def marginal_effects(
        self,
        X: Any,
        level: float = 0.95,
        *,
        at: str = "overall",
        method: str = "auto",
        errors: str = "posterior",
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> pd.DataFrame:
        """Table of the effects d p_k / d x_d: by how much a probability moves per unit of a feature.

        Parameters
        ----------
        X : rows
        level : float, default 0.95
        at : {"overall", "mean"}, default "overall"
            The average over the rows, or the effect at their mean.
        method : {"auto", "draws", "delta"}, default "auto"
            Errors by draws from the posterior, or by the slopes of the effects at its mean (the delta method): "auto"
            draws where the prior is proper, and takes slopes with "flat", "jeffreys" and robust errors.
        errors, y, sample_weight, groups
            As in `summary`; robust errors need y, and X is then the rows of the fit.
        """
        rows = RowsAgain(X, y, sample_weight, groups)
        return _marginal_effects(_checked(self), at, method, require_level(level), errors, rows)


def _checked(model: Any) -> BayesianSoftmaxRegression:
    check_is_fitted(model, "solution_")
    return model


def _summary(
    model: BayesianSoftmaxRegression, coding: str, level: float, reference: Any, errors: str, rows: RowsAgain
) -> pd.DataFrame:
    """One row per class and feature, in a coding of the classes."""
    K = len(model.classes_)
    if coding == "symmetric":
        C = np.eye(K)
    elif coding == "sum":
        C = np.eye(K) - 1.0 / K
    elif coding == "reference":
        base = 0 if reference is None else _index(model, reference)
        C = np.delete(np.eye(K) - np.eye(K)[base], base, axis=0)
    else:
        raise ValueError(f"coding={coding!r} is unknown: use 'symmetric', 'reference' or 'sum'.")
    classes = model.classes_ if len(C) == K else np.delete(model.classes_, base)
    return _coefficients(model, C, list(classes), level, errors, rows)


def _contrast(
    model: BayesianSoftmaxRegression, first: Any, second: Any, level: float, errors: str, rows: RowsAgain
) -> pd.DataFrame:
    """Coefficients of log p(first) / p(second)."""
    i, j = _index(model, first), _index(model, second)
    if i == j:
        raise ValueError(f"Both classes are {first!r}: a contrast needs two.")
    K = len(model.classes_)
    C = (np.eye(K)[i] - np.eye(K)[j])[None]
    table = _coefficients(model, C, [f"{first} - {second}"], level, errors, rows)
    return table.rename(columns={"class": "contrast"})


def _coefficients(
    model: BayesianSoftmaxRegression, C: np.ndarray, classes: list[Any], level: float, errors: str, rows: RowsAgain
) -> pd.DataFrame:
    """Coefficients of the class combinations C (m, K), for every feature and the intercept, in the data's units."""
    kind = standard_errors(errors)
    fitted, estimate = model.fitted_, kind.estimate(model, rows)
    width = fitted.mode.shape[1]
    units = fitted.coordinates.outward_matrix(width)  # a coefficient in the data's units is a logit at one of its rows
    size = np.abs(units).max(axis=1)  # the square of a unit may be beyond the range of numbers, but not the unit
    units = units / size[:, None]
    differences = np.abs(C.sum(axis=1)).max() < 1e-12
    covariances = estimate.contrast_covariance(units) if differences else estimate.latent_covariance(units)
    mean = C @ fitted.in_data_units(estimate.mean, model.n_features_in_)
    sd = np.sqrt(np.maximum(np.einsum("mk,dkl,ml->md", C, covariances, C), 0.0))
    if (unknown := _undetermined(model, estimate, C, units, sd)) is not None:
        mean, sd = np.where(unknown, C @ fitted.mean(model.n_features_in_), mean), np.where(unknown, np.inf, sd)
    sd = sd * size
    names = _feature_names(model) + (["(intercept)"] if width > model.n_features_in_ else [])
    return _table(model, classes, names, mean, sd, level, kind.sampling)


def _undetermined(
    model: BayesianSoftmaxRegression, estimate: Estimate, C: np.ndarray, units: np.ndarray, sd: np.ndarray
) -> np.ndarray | None:
    """Coefficients (m, D') that separation of classes drives to infinity; None if there are none.

    Free directions have unit length by the most information there can be, which makes them comparable with `sd`.
    """
    if not _separated(model):
        return None
    if not isinstance(estimate, CovarianceInBasis) or estimate.free is None:  # all that is known is that some are
        return np.ones((len(C), len(units)), dtype=bool)
    along = np.einsum("mk,rkd,ed->rme", C, estimate.free, units, optimize=True)
    return np.linalg.norm(along, axis=0) > _STILL * sd


def _separated(model: BayesianSoftmaxRegression) -> bool:
    """Whether the likelihood has no maximum, and no prior keeps the estimates finite."""
    return model.fitted_.precision is None and model.solution_.status is Status.SEPARATED


def _table(
    model: BayesianSoftmaxRegression,
    classes: list[Any],
    names: list[str],
    mean: np.ndarray,
    sd: np.ndarray,
    level: float,
    sampling: bool,
) -> pd.DataFrame:
    """Figures (m, d) with standard errors as rows of a table; with z and p where they are errors of sampling."""
    import pandas as pd

    half = ndtri(0.5 * (1.0 + level)) * sd
    z = np.divide(mean, sd, out=np.copysign(np.inf, mean), where=sd > 0)
    columns = {
        "class": np.repeat(np.array(classes, dtype=object), len(names)),
        "feature": names * len(classes),
        "mean": mean.ravel(),
        "sd": sd.ravel(),
        "lower": (mean - half).ravel(),
        "upper": (mean + half).ravel(),
        "probability_of_sign": np.where(mean == 0, 0.5, ndtr(np.abs(z))).ravel(),
    }
    if sampling or model.fitted_.precision is None:
        columns |= {"z": z.ravel(), "p": 2.0 * ndtr(-np.abs(z)).ravel()}
    return pd.DataFrame(columns)


def _marginal_effects(
    model: BayesianSoftmaxRegression, at: str, method: str, level: float, errors: str, rows: RowsAgain
) -> pd.DataFrame:
    """Effects d p_k / d x_d with their errors, by draws from the posterior or by the delta method."""
    import pandas as pd

    require_choice("method", method, ("auto", "draws", "delta"))
    kind = standard_errors(errors)
    if method == "auto":
        method = "delta" if kind.sampling or model.fitted_.precision is None else "draws"
    if method == "draws" and kind.sampling:
        raise ValueError(f"method='draws' has the errors of the posterior, not errors={errors!r}: use method='delta'.")
    K, names = len(model.classes_), _feature_names(model)
    if rows.sample_weight is not None and rows.y is None:
        raise ValueError("sample_weight= needs y= too: pass the rows of the fit, or rows without weights.")
    blocks = model.blocks(rows.X, K) if rows.y is None else blocks_again(model, rows)
    if method == "delta":
        mean, sd = _effects_by_slopes(model, blocks, at, kind.estimate(model, rows))
        if _separated(model):
            sd = np.full_like(sd, np.inf)
        return _table(model, list(model.classes_), names, mean, sd, level, kind.sampling)
    effects, tail = _drawn_effects(model, blocks, at), 0.5 * (1.0 - level)
    mean, size = effects.mean(axis=0), np.abs(effects).max(axis=0)
    size = np.where(size > 0, size, 1.0)  # in whatever units: squares of effects may be beyond the range of numbers
    return pd.DataFrame(
        {
            "class": np.repeat(np.asarray(model.classes_, dtype=object), len(names)),
            "feature": names * K,
            "mean": mean.ravel(),
            "sd": ((effects / size).std(axis=0) * size).ravel(),
            "lower": np.quantile(effects, tail, axis=0).ravel(),
            "upper": np.quantile(effects, 1.0 - tail, axis=0).ravel(),
            "probability_of_sign": (np.sign(effects) == np.sign(mean)).mean(axis=0).ravel(),
        }
    )


Summed = Callable[..., Any]
"""A kernel of rows and its parameters -> its sum."""


def _over_rows(blocks: Blocks) -> Summed:
    """All rows: effects are averaged over them."""
    return blocks.map_sum


def _at_mean_row(blocks: Blocks) -> Summed:
    """One row, the mean of all."""
    total, sums = blocks.map_sum(weighted_sums)
    row = sums[None] / total
    return lambda kernel, *params: kernel(row, None, None, *params)


_AT: dict[str, Callable[[Blocks], Summed]] = {"overall": _over_rows, "mean": _at_mean_row}
"""Rows at which effects are taken, by name."""


def _effects_by_slopes(
    model: BayesianSoftmaxRegression, blocks: Blocks, at: str, estimate: Estimate
) -> tuple[np.ndarray, np.ndarray]:
    """Effects at the estimate (K, D) and their standard errors by the delta method, in the units of the data."""
    total, effects, slopes = _summed(blocks, at, effect_slopes, estimate.mean, model.fitted_.offset)
    _require_near(model, blocks, slopes)
    K, D = effects.shape
    per_unit = (1.0 - model.label_noise_) / model.fitted_.coordinates.unit / total
    variances = estimate.contrast_variances(slopes.reshape(K * D, K, -1)).reshape(K, D)
    return effects * per_unit, np.sqrt(np.maximum(variances, 0.0)) * per_unit


def _drawn_effects(model: BayesianSoftmaxRegression, blocks: Blocks, at: str) -> np.ndarray:
    """Effects under draws from the posterior, (S, K, D), in the units of the data."""
    D = model.n_features_in_
    thetas = model.fitted_.draws(_EFFECT_DRAWS, 0)
    moments = _summed(blocks, at, drawn_moments, thetas, model.fitted_.offset)
    _require_near(model, blocks, moments)
    moments /= moments[:, :, 0].sum(axis=1)[:, None, None]  # probabilities of a row sum to one
    W = np.stack([model.fitted_.coordinates.outward(theta)[:, :D] for theta in thetas])
    return (moments[:, :, :1] * W - moments[:, :, 1:] @ W) * (1.0 - model.label_noise_)


def _summed(blocks: Blocks, at: str, kernel: Any, *params: Any) -> Any:
    """The sum of a kernel over the rows at which effects are taken."""
    require_choice("at", at, _AT)
    # rows may be so far from those of the fit that their logits overflow: the sum is then looked at
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        return _AT[at](blocks)(kernel, *params)


def _require_near(model: BayesianSoftmaxRegression, blocks: Blocks, sums: np.ndarray) -> None:
    """Raise where sums over rows are not numbers, as a row is too far from those of the fit to have logits."""
    if np.isfinite(sums).all():
        return
    with np.errstate(over="ignore", invalid="ignore"):
        largest = blocks.map_sum(extremes).largest
    furthest = _feature_names(model)[int(np.nan_to_num(largest, nan=np.inf, posinf=np.inf).argmax())]
    raise ValueError(
        f"Rows of X are so far from the rows of the fit, most of all in column {furthest!r}, that their logits are not "
        "finite numbers and their effects are not known. Give the column in the units that it had in the fit, or leave "
        "these rows out."
    )


def _feature_names(model: BayesianSoftmaxRegression) -> list[str]:
    names = getattr(model, "feature_names_in_", None)
    return [f"x{d}" for d in range(model.n_features_in_)] if names is None else list(names)


def _index(model: BayesianSoftmaxRegression, label: Any) -> int:
    found = np.flatnonzero(model.classes_ == label)
    if found.size != 1:
        raise ValueError(f"{label!r} is not a class of this model: its classes are {model.classes_.tolist()}.")
    return int(found[0])


def facts(model: BayesianSoftmaxRegression) -> dict[str, str]:
    """Facts by name: what was fitted, under which prior, how well."""
    K, D = model.coef_.shape
    solution = model.solution_
    shown = {
        "classes": f"{K}: {_few(model.classes_)}",
        "features": f"{D}",
        "prior": _prior(model),
        **_blocks(model),
        "posterior": f"{solution.approximation}, {solution.structure} ({solution.approximation_reason})",
        "log evidence": "none: the prior is improper" if model.log_evidence_ is None else f"{model.log_evidence_:.2f}",
        "mode": f"{solution.status.name.lower().replace('_', ' ')}, gap {solution.gap:.1e} of {solution.objective:.4g}",
    }
    if solution.strength_reason:
        shown["strength of prior"] = solution.strength_reason
    if model.chosen_predictive == "plugin":
        shown["probabilities"] = "by the mode alone"
    statistics = getattr(model, "statistics_", None)  # not in files of earlier versions
    if statistics is not None and statistics.aic is not None:
        shown["log-likelihood"] = (
            f"{statistics.log_likelihood:.4f}, pseudo R2 {statistics.pseudo_r2:.4f}, AIC {statistics.aic:.2f}, "
            f"BIC {statistics.bic:.2f}"
        )
    if solution.scores:
        scores = ", ".join(f"{name} {score:.4f}" for name, score in solution.scores.items())
        shown["left-out log-loss"] = scores
    if model.label_noise_ > 0:
        shown["label noise"] = f"{model.label_noise_:.3f}"
    return shown


def as_text(model: BayesianSoftmaxRegression) -> str:
    """The facts as text, and the coefficients about their mean over classes."""
    shown = facts(model)
    width = max(map(len, shown))
    lines = ["Bayesian softmax regression", *(f"  {name:<{width}}  {value}" for name, value in shown.items()), ""]
    table = model.summary("sum")
    lines.append(table.head(_MOST_ROWS).to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    if len(table) > _MOST_ROWS:
        lines.append(f"... {len(table) - _MOST_ROWS} more: see summary()")
    return "\n".join(lines)


def as_html(model: BayesianSoftmaxRegression) -> str:
    """The facts and coefficients as HTML, for a notebook."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in facts(model).items()
    )
    table = model.summary("sum")
    coefficients = table.head(_MOST_ROWS).to_html(index=False, border=0, float_format=lambda x: f"{x:.4g}")
    more = len(table) - _MOST_ROWS
    rest = f"<p>{more} more: see <code>summary()</code></p>" if more > 0 else ""
    return f"<div><strong>Bayesian softmax regression</strong><table>{rows}</table>{coefficients}{rest}</div>"


def _prior(model: BayesianSoftmaxRegression) -> str:
    """The prior in words."""
    prior, note = model.prior_, prior_from(model.prior).note
    if prior is None:
        return note
    precision = prior.precision
    if isinstance(precision, float):
        return f"Gaussian, precision {precision:.3g} on every weight{note}"
    if isinstance(precision, np.ndarray) and precision.shape == model.coef_.shape:
        return f"Gaussian, precisions from {precision.min():.3g} to {precision.max():.3g} in the data's units{note}"
    return "Gaussian with a full precision matrix"


def _blocks(model: BayesianSoftmaxRegression) -> dict[str, str]:
    """The precision of each block of columns, the weakest first: these are the blocks of large effects."""
    found = getattr(model, "block_precisions_", None)
    if found is None:
        return {}
    ranked = sorted(found.items(), key=lambda item: item[1])
    shown = ", ".join(f"{label} {precision:.3g}" for label, precision in ranked[:_MOST_BLOCKS])
    return {"blocks": f"{len(ranked)}, with precisions {shown}{', ...' if len(ranked) > _MOST_BLOCKS else ''}"}


def _few(labels: np.ndarray, most: int = 6) -> str:
    shown = ", ".join(str(label) for label in labels[:most])
    return shown if len(labels) <= most else f"{shown}, ..."
