"""Plots of probabilities and decisions, in scikit-learn's Display convention.

``Display.from_estimator(...)`` or ``Display.from_predictions(...)`` computes and draws; the object keeps the numbers
and the axes (`ax_`, `figure_`), and `plot(ax=...)` draws them again elsewhere.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from posteriori.decision import Utility, decide
from posteriori.decision.decisions import distributions
from posteriori.decision.replication import PosteriorCheck
from posteriori.decision.scores import CalibrationBins, calibration_bins, labels_and_weights
from posteriori.decision.utility import action_places, codes_of, places
from posteriori.meta.checking import posterior_check
from posteriori.meta.comparison import Comparison, compare

__all__ = [
    "ComparisonDisplay",
    "ConfusionUtilityDisplay",
    "DecisionRegionDisplay",
    "PosteriorCheckDisplay",
    "ReliabilityDisplay",
    "UtilityCurveDisplay",
]

_BLUE, _ORANGE, _GREY = "#3b6fb6", "#d9822b", "0.6"
_FARTHEST = 6.0
"""Standard deviations from the mean beyond which an observed number is drawn at the edge."""


def _axes(ax: Any) -> Any:
    """Axes to draw on; matplotlib is imported only here."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("Plots need matplotlib: pip install 'posteriori[plot]'.") from None
    return plt.subplots(layout="constrained")[1] if ax is None else ax


class _Display:
    """The base of all displays: it remembers the axes."""

    ax_: Any
    figure_: Any

    def _on(self, ax: Any) -> Any:
        ax = _axes(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return ax


class ReliabilityDisplay(_Display):
    """Frequency against probability: points on the diagonal are what calibrated probabilities give.

    Parameters
    ----------
    bins : CalibrationBins
    name : str or None
    event : str
        What the probability is of.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianClassifier("tied").fit(X[::2], y[::2])
    >>> display = ReliabilityDisplay.from_estimator(model, X[1::2], y[1::2], n_bins=3)
    >>> display.ax_.get_xlabel(), display.ax_.get_ylabel()
    ('probability of the most probable class', 'frequency')
    """

    def __init__(
        self, bins: CalibrationBins, *, name: str | None = None, event: str = "the most probable class"
    ) -> None:
        self.bins, self.name, self.event = bins, name, event

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        proba: Any,
        *,
        classes: Any = None,
        of: Any = None,
        n_bins: int = 10,
        strategy: str = "quantile",
        sample_weight: Any = None,
        name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Compute and draw the diagram of the most probable class of each row, or of one class.

        Parameters
        ----------
        y : array-like (n,)
            The true classes.
        proba : array or table (n, K)
            Class probabilities.
        classes : array-like (K,), optional
            The classes of the columns; without it those that occur in y, sorted.
        of : class, optional
            The class whose probability is drawn against its frequency.
        n_bins : int, default 10
            The number of bins of probabilities.
        strategy : {"quantile", "uniform"}, default "quantile"
            Bins of equally many rows, or of equal width.
        sample_weight, name, ax
            Weights of the rows, a name for the legend, and the axes to draw on.
        """
        P = distributions(proba, "proba")
        known = np.unique(np.asarray(y)) if classes is None else np.asarray(classes)
        codes, weights = labels_and_weights(y, classes, P, sample_weight)
        if of is None:
            top, event = P.argmax(axis=1), "the most probable class"
        else:
            top, event = np.full(len(P), codes_of([of], known)[0]), f"class {of}"
        p, hit = P[np.arange(len(P)), top], (top == codes).astype(np.float64)
        bins = calibration_bins(p, hit, weights, n_bins, strategy)  # type: ignore[arg-type]
        return cls(bins, name=name, event=event).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, name: str | None = None, **options: Any) -> Self:
        """Compute and draw the diagram of a fitted estimator; options as for `from_predictions`."""
        name = type(estimator).__name__ if name is None else name
        return cls.from_predictions(y, estimator.predict_proba(X), classes=estimator.classes_, name=name, **options)

    def plot(self, ax: Any = None) -> Self:
        """Draw frequencies with two standard errors, and the share of rows in each bin."""
        ax = self._on(ax)
        bins = self.bins
        error = 2.0 * np.sqrt(np.maximum(bins.frequency * (1.0 - bins.frequency), 0.25 / bins.count) / bins.count)
        ax.plot([0, 1], [0, 1], color=_GREY, linewidth=1, zorder=0)
        ax.errorbar(
            bins.probability, bins.frequency, yerr=error, fmt="o", color=_BLUE, markersize=5, capsize=2, label=self.name
        )
        share = bins.weight / bins.weight.sum()
        ax.vlines(bins.probability, 0.0, 0.2 * share / share.max(), color=_BLUE, alpha=0.35, linewidth=5)
        ax.set(xlabel=f"probability of {self.event}", ylabel="frequency", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        if self.name is not None:
            ax.legend(frameon=False, loc="upper left")
        return self


class UtilityCurveDisplay(_Display):
    """Mean utility as more and more rows are given a reject action, the least clear-cut first.

    Parameters
    ----------
    share : ndarray (m,)
        The share of rows that are decided.
    utility : ndarray (m,)
        Mean realised utility of these.
    error : ndarray (m,)
        The standard error of the mean utility.
    name : str or None

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianClassifier("tied").fit(X[::2], y[::2])
    >>> display = UtilityCurveDisplay.from_estimator(model, X[1::2], y[1::2])
    >>> display.utility[-1].round(2)  # all rows decided: the accuracy
    np.float64(0.96)
    """

    def __init__(self, share: np.ndarray, utility: np.ndarray, error: np.ndarray, *, name: str | None = None) -> None:
        self.share, self.utility, self.error, self.name = share, utility, error, name

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        proba: Any,
        utility: Utility | None = None,
        *,
        classes: Any = None,
        name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Compute and draw the curve of class probabilities.

        Parameters
        ----------
        y : array-like (n,)
            The true classes.
        proba : array or table (n, K)
            Class probabilities.
        utility : Utility, optional
            What decisions are worth; zero-one if left out.
        classes : array-like (K,), optional
            The classes of the columns; without it those that occur in y, sorted.
        name, ax
            A name for the legend, and the axes to draw on.
        """
        labels = np.asarray(y)
        known = np.unique(labels) if classes is None else np.asarray(classes)
        utility = Utility.zero_one(known) if utility is None else utility.ordered(known)
        if not utility.constant:
            raise ValueError("A utility curve needs one utility for all rows.")
        assert utility.matrix is not None
        decisions = decide(proba, utility, classes=known)
        realised = utility.matrix[codes_of(labels, known), decisions.codes][
            np.argsort(-decisions.margin, kind="stable")
        ]
        n = np.arange(1, len(realised) + 1)
        mean = np.cumsum(realised) / n
        variance = np.maximum(np.cumsum(realised**2) / n - mean**2, 0.0)
        shown = np.unique(np.linspace(0, len(n) - 1, 200).astype(int))
        return cls(n[shown] / len(n), mean[shown], np.sqrt(variance / n)[shown], name=name).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, utility: Utility | None = None, *, name: str | None = None, ax: Any = None
    ) -> Self:
        """Compute and draw the curve of a fitted estimator; a `UtilityClassifier` has a utility of its own."""
        name = type(estimator).__name__ if name is None else name
        if utility is None:
            utility = getattr(estimator, "utility", None)
        return cls.from_predictions(
            y, estimator.predict_proba(X), utility, classes=estimator.classes_, name=name, ax=ax
        )

    def plot(self, ax: Any = None) -> Self:
        """Draw the curve with two standard errors."""
        ax = self._on(ax)
        (line,) = ax.plot(self.share, self.utility, label=self.name)
        low, high = self.utility - 2.0 * self.error, self.utility + 2.0 * self.error
        ax.fill_between(self.share, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        ax.set(xlabel="share of rows decided, clearest first", ylabel="mean realised utility", xlim=(0, 1))
        if self.name is not None:
            ax.legend(frameon=False)
        return self


class ConfusionUtilityDisplay(_Display):
    """The number of times each action was taken in each state, and its contribution to the mean utility.

    Parameters
    ----------
    counts : ndarray (K, A)
    utility : ndarray (K, A)
    states, actions : sequence of names

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianClassifier("tied").fit(X[::2], y[::2])
    >>> ConfusionUtilityDisplay.from_estimator(model, X[1::2], y[1::2]).counts
    array([[25.,  0.,  0.],
           [ 0., 24.,  1.],
           [ 0.,  2., 23.]])
    """

    def __init__(self, counts: np.ndarray, utility: np.ndarray, states: Any, actions: Any) -> None:
        self.counts, self.utility, self.states, self.actions = counts, utility, states, actions

    @classmethod
    def from_predictions(
        cls, y: Any, actions: Any, utility: Utility, *, sample_weight: Any = None, ax: Any = None
    ) -> Self:
        """Compute and draw the table of the actions taken when the truth was y, and of their utility."""
        if not utility.constant:
            raise ValueError("A confusion table needs one utility for all rows.")
        assert utility.matrix is not None
        counts = np.zeros(utility.matrix.shape)
        weights = 1.0 if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        np.add.at(counts, (places(y, utility.states), action_places(actions, utility)), weights)
        return cls(counts, utility.matrix, utility.states, utility.actions).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, sample_weight: Any = None, ax: Any = None) -> Self:
        """Compute and draw the table of an estimator; without a utility of its own, with zero-one."""
        given = getattr(estimator, "utility", None)
        utility = Utility.zero_one(estimator.classes_) if given is None else given
        utility = utility.ordered(estimator.classes_)
        return cls.from_predictions(y, estimator.predict(X), utility, sample_weight=sample_weight, ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the table; colour is the contribution to the mean utility."""
        ax = self._on(ax)
        part = self.counts * self.utility / max(self.counts.sum(), 1e-300)
        limit = max(np.abs(part).max(), 1e-300)
        ax.imshow(part, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
        for k, a in np.ndindex(part.shape):
            dark = abs(part[k, a]) > 0.6 * limit
            text = f"{self.counts[k, a]:g}\n{part[k, a]:+.3g}"
            ax.text(a, k, text, ha="center", va="center", color="white" if dark else "black")
        ax.set_xticks(range(len(self.actions)), [str(name) for name in self.actions])
        ax.set_yticks(range(len(self.states)), [str(name) for name in self.states])
        ax.set(xlabel="action", ylabel="truth", title=f"mean utility {part.sum():.4g}: count, and share in it")
        return self


class DecisionRegionDisplay(_Display):
    """The best action over two features; pale where the best action is hardly better than the second best.

    Parameters
    ----------
    grid : tuple of ndarray (m,)
        Values of the two features.
    codes : ndarray of int (m, m)
    certainty : ndarray (m, m)
        0 where two actions are equally good, 1 where the choice is clearest.
    actions : sequence of names
    names : pair of str

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> display = DecisionRegionDisplay.from_estimator(GaussianClassifier("tied").fit(X, y), X, y, features=(2, 3))
    >>> display.codes.shape
    (200, 200)
    """

    def __init__(
        self, grid: tuple[np.ndarray, np.ndarray], codes: np.ndarray, certainty: np.ndarray, actions: Any, names: Any
    ) -> None:
        self.grid, self.codes, self.certainty, self.actions, self.names = grid, codes, certainty, actions, names

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        utility: Utility | None = None,
        *,
        features: tuple[int, int] = (0, 1),
        at: Any = None,
        resolution: int = 200,
        ax: Any = None,
    ) -> Self:
        """Compute and draw the regions of a classifier over two features.

        Parameters
        ----------
        estimator : fitted classifier
            A `UtilityClassifier`, or any classifier with `predict_proba`.
        X, y
            Rows to draw, and their classes for the colours.
        utility : Utility, optional
            By what actions are chosen; zero-one if left out.
        features : pair of int, default (0, 1)
            The columns of the two axes.
        at : array (D,), optional
            The values of the other columns; their means if left out.
        resolution : int, default 200
            Points of the grid along each axis.
        ax
            The axes to draw on.
        """
        rows = np.asarray(X, dtype=np.float64)
        i, j = features
        first, second = (
            np.linspace(
                rows[:, d].min() - 0.05 * np.ptp(rows[:, d]), rows[:, d].max() + 0.05 * np.ptp(rows[:, d]), resolution
            )
            for d in (i, j)
        )
        points = np.tile(rows.mean(axis=0) if at is None else np.asarray(at, dtype=np.float64), (resolution**2, 1))
        A, B = np.meshgrid(first, second)
        points[:, i], points[:, j] = A.ravel(), B.ravel()
        names = [str(name) for name in getattr(estimator, "feature_names_in_", [f"x{d}" for d in range(rows.shape[1])])]
        if utility is None:
            utility = getattr(estimator, "utility", None)
        classes = estimator.classes_
        utility = Utility.zero_one(classes) if utility is None else utility
        given = points
        if hasattr(X, "columns"):  # a table of the same kind: pandas' or polars'
            columns = {str(name): points[:, d] for d, name in enumerate(X.columns)}
            given = type(X)(columns)
        decisions = decide(estimator.predict_proba(given), utility, classes=classes, X=given)
        margin = np.where(np.isfinite(decisions.margin), decisions.margin, 1.0)
        certainty = margin / max(margin.max(), 1e-300)
        shape = (resolution, resolution)
        display = cls(
            (first, second),
            decisions.codes.reshape(shape),
            certainty.reshape(shape),
            utility.actions,
            (names[i], names[j]),
        ).plot(ax)
        if y is not None:
            codes = codes_of(y, classes)
            for k, label in enumerate(classes):
                mine = codes == k
                display.ax_.scatter(
                    rows[mine, i], rows[mine, j], s=14, edgecolor="white", linewidth=0.4, label=str(label)
                )
            display.ax_.legend(title="truth", frameon=True, framealpha=0.9)
        return display

    def plot(self, ax: Any = None) -> Self:
        """Draw regions in the colour of their action, and the lines where two are equally good."""
        ax = self._on(ax)
        import matplotlib as mpl
        from scipy.ndimage import distance_transform_edt

        colours = mpl.colormaps["tab10"](np.arange(len(self.actions)) % 10)[:, :3]
        strength = (0.12 + 0.48 * np.sqrt(self.certainty))[..., None]
        image = 1.0 - strength * (1.0 - colours[self.codes])
        (left, right), (bottom, top) = ((values[0], values[-1]) for values in self.grid)
        ax.imshow(image, extent=(left, right, bottom, top), origin="lower", aspect="auto", interpolation="bilinear")
        shown = np.unique(self.codes)
        for code in shown[1:] if len(shown) > 1 else []:
            ax.contour(*self.grid, (self.codes == code).astype(float), levels=[0.5], colors="0.25", linewidths=0.8)
        for code in shown:
            inner = distance_transform_edt(np.pad(self.codes == code, 1))[1:-1, 1:-1]  # farthest from its borders
            b, a = np.unravel_index(int(inner.argmax()), inner.shape)
            x, z = self.grid[0][a], self.grid[1][b]
            ax.text(x, z, str(self.actions[code]), ha="center", va="center", weight="bold", color="0.15")
        ax.set(xlabel=self.names[0], ylabel=self.names[1])
        return self


class PosteriorCheckDisplay(_Display):
    """Numbers made of observed labels, each beside those of labels that the model replicated.

    All are drawn on one axis, in standard deviations of the replicated numbers from their mean: a dot far from its band
    is a number that the model hardly ever gives.

    Parameters
    ----------
    check : PosteriorCheck
    name : str or None

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianClassifier("tied").fit(X[::2], y[::2])
    >>> display = PosteriorCheckDisplay.from_estimator(model, X[1::2], y[1::2], n_draws=100)
    >>> display.check.n_rows
    75
    """

    def __init__(self, check: PosteriorCheck, *, name: str | None = None) -> None:
        self.check, self.name = check, name

    @classmethod
    def from_check(cls, check: PosteriorCheck, *, name: str | None = None, ax: Any = None) -> Self:
        """Draw a check that has been made."""
        return cls(check, name=name).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, name: str | None = None, ax: Any = None, **options: Any
    ) -> Self:
        """Check a fitted estimator and draw it; options as for `posterior_check`."""
        name = type(estimator).__name__ if name is None else name
        return cls.from_check(posterior_check(estimator, X, y, **options), name=name, ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw bands of 50 % and 95 % of the replicated numbers, the observed ones and their tail probabilities."""
        ax = self._on(ax)
        statistics = list(self.check.statistics.values())
        for place, each in enumerate(statistics):
            spread = each.replicated.std()
            centre, unit = each.replicated.mean(), spread if spread > 0.0 else 1.0
            ends = (np.quantile(each.replicated, [0.025, 0.25, 0.75, 0.975]) - centre) / unit
            ax.plot(ends[[0, 3]], [place, place], color=_BLUE, alpha=0.35, linewidth=3, solid_capstyle="butt")
            ax.plot(ends[[1, 2]], [place, place], color=_BLUE, alpha=0.7, linewidth=8, solid_capstyle="butt")
            tail = each.tail_probability
            seen = np.clip((each.observed - centre) / unit, -_FARTHEST, _FARTHEST)
            marker = "o" if abs(seen) < _FARTHEST else "<" if seen < 0.0 else ">"
            colour = _ORANGE if min(tail, 1.0 - tail) < 0.025 else "black"
            ax.plot([seen], [place], marker, color=colour, markersize=7, markeredgecolor="white", zorder=3)
            text = f"{each.observed:.3g}   tail {tail:.3f}"
            ax.text(1.01, place, text, transform=ax.get_yaxis_transform(), va="center", fontsize="small")
        ax.axvline(0.0, color=_GREY, linewidth=1, zorder=0)
        ax.set_yticks(range(len(statistics)), [each.name.replace("_", " ") for each in statistics])
        ax.set(
            xlim=(-_FARTHEST - 0.3, _FARTHEST + 0.3),
            ylim=(len(statistics) - 0.4, -0.6),
            xlabel="standard deviations from the mean of replicated labels",
            ylabel="statistic",
        )
        if self.name is not None:
            ax.set_title(self.name)
        return self


class ComparisonDisplay(_Display):
    """Log-losses of models above that of the best one, with the standard errors of these differences.

    Parameters
    ----------
    comparison : Comparison

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> models = {"tied": GaussianClassifier("tied"), "naive": GaussianClassifier("diagonal")}
    >>> ComparisonDisplay.from_estimators(models, X, y).comparison.best
    'tied'
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    @classmethod
    def from_comparison(cls, comparison: Comparison, *, ax: Any = None) -> Self:
        """Draw the models of a comparison."""
        return cls(comparison).plot(ax)

    @classmethod
    def from_estimators(cls, models: Any, X: Any, y: Any, *, ax: Any = None, **options: Any) -> Self:
        """Compare models on rows that they have not seen, and draw them; options are those of `compare`."""
        return cls.from_comparison(compare(models, X, y, **options), ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw a line for each model, the best on top: bars are of one and of two standard errors."""
        ax, models = self._on(ax), self.comparison.models
        place = np.arange(len(models))
        behind, error = (np.array([getattr(m, key) for m in models]) for key in ("difference", "difference_error"))
        ax.axvline(0.0, color=_GREY, linewidth=1)
        ax.errorbar(behind, place, xerr=2.0 * error, fmt="none", ecolor=_BLUE, elinewidth=1, alpha=0.6)
        ax.errorbar(behind, place, xerr=error, fmt="o", color=_BLUE, elinewidth=3, markersize=6)
        ax.set_yticks(place, [f"{m.name}\n{m.log_loss:.4f}" for m in models])
        ax.set_ylim(len(models) - 0.5, -0.5)
        ax.set_xlabel(f"log-loss above that of {models[0].name}, nats a row")
        ax.set_ylabel("model, log-loss")
        n = len(self.comparison.rows)
        ax.set_title(f"{n:,} rows, each predicted without itself", fontsize="medium")
        return self
