"""Which classes may be in a file, each by a short name that never changes. Nothing else is stored, or loaded.

A class is added by one line. Its name in files stays when it is moved or renamed; what is stored of it may grow by
fields that have a default, all else is a new format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

__all__ = ["Stored", "by_name", "of_type"]

How = Literal["estimator", "fields", "attributes", "enum"]


@dataclass(frozen=True)
class Stored:
    """How objects of a class are stored.

    Attributes
    ----------
    name : str
        In files.
    home : str
        The module that defines the class; imported when an object of it is made.
    how : {"estimator", "fields", "attributes", "enum"}
        Constructor's parameters and all that was fitted; the fields of a dataclass or named tuple; the attributes
        named here; a member by its name.
    attributes : tuple of str
        For "attributes"; others of the object are caches, and made anew.
    lean : callable, optional
        State as a dict -> what is stored of it: without rows, and what can be made again.
    prepare : callable, optional
        Called with the object before its state is read.
    finish : callable, optional
        Called with the object after its state is set.
    deferred : bool
        Whether objects are made when they are first needed, as their module imports JAX.
    """

    name: str
    home: str
    how: How
    attributes: tuple[str, ...] = ()
    lean: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    prepare: Callable[[Any], Any] | None = None
    finish: Callable[[Any], Any] | None = None
    deferred: bool = False
    type_name: str = ""
    """Of the class, where it is not the name in files."""

    @property
    def key(self) -> tuple[str, str]:
        """Module and name of the class."""
        return self.home, self.type_name or self.name

    @property
    def type(self) -> Any:
        """The class itself."""
        return getattr(import_module(self.home), self.type_name or self.name)


def by_name(name: Any) -> Stored | None:
    """The class that files call so."""
    return _BY_NAME.get(name) if isinstance(name, str) else None


def of_type(cls: type) -> Stored | None:
    """The entry of a class; not of one derived from it, which may hold more."""
    return _BY_KEY.get((cls.__module__, cls.__qualname__))


def _without_rows(state: dict[str, Any]) -> dict[str, Any]:
    """A Gaussian classifier's statistics are all it needs, but for choosing its prior anew: rows are not stored."""
    kept = state.get("_kept")
    if kept is None:
        return state
    none = slice(0, 0)
    return state | {"_kept": type(kept)(kept.X[none].copy(), kept.codes[none], kept.weights[none], kept.n_seen)}


def _derived(model: Any) -> None:
    """After partial_fit a Gaussian classifier is derived when asked for, from rows that are not stored."""
    if "_statistics" in vars(model):
        _ = model._fit


def _without_first_rows(state: dict[str, Any]) -> dict[str, Any]:
    """The first rows of the first call serve to recognise a second pass."""
    return state | {"_first_rows": None}


def _without_function(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "f_"}


def _interpolating(isotonic: Any) -> None:
    if hasattr(isotonic, "X_thresholds_"):
        isotonic._build_f(isotonic.X_thresholds_, isotonic.y_thresholds_)


def _estimators() -> list[Stored]:
    sk = "sklearn"
    return [
        Stored("SoftmaxRegression", "posteriori.softmax.regression", "estimator"),
        Stored("BayesianSoftmaxRegression", "posteriori.softmax.bayesian", "estimator"),
        Stored(
            "GaussianClassifier", "posteriori.gaussian.classifier", "estimator", lean=_without_rows, prepare=_derived
        ),
        Stored("GPClassifier", "posteriori.gp.classifier", "estimator"),
        Stored("DeepGPClassifier", "posteriori.gp.deep_classifier", "estimator"),
        Stored("TableEncoder", "posteriori.tables.encoder", "estimator"),
        Stored("UtilityClassifier", "posteriori.meta.utility_classifier", "estimator"),
        Stored("CalibratedClassifier", "posteriori.meta.calibrated_classifier", "estimator"),
        Stored("ConformalClassifier", "posteriori.meta.conformal_classifier", "estimator"),
        # of scikit-learn, what a pipeline of numbers needs
        Stored("Pipeline", f"{sk}.pipeline", "estimator"),
        Stored("StandardScaler", f"{sk}.preprocessing._data", "estimator"),
        Stored("MinMaxScaler", f"{sk}.preprocessing._data", "estimator"),
        Stored("RobustScaler", f"{sk}.preprocessing._data", "estimator"),
        Stored("SimpleImputer", f"{sk}.impute._base", "estimator"),
        Stored("PCA", f"{sk}.decomposition._pca", "estimator"),
        Stored("CalibratedClassifierCV", f"{sk}.calibration", "estimator"),
        Stored(
            "IsotonicRegression", f"{sk}.isotonic", "estimator", lean=_without_function, finish=_interpolating
        ),
    ]  # fmt: skip


def _parts() -> list[Stored]:
    return [
        Stored("Status", "posteriori.solvers.solution", "enum"),
        Stored("Solution", "posteriori.solvers.solution", "fields"),
        Stored("BayesianSolution", "posteriori.solvers.solution", "fields"),
        Stored("TraceEntry", "posteriori.solvers.solution", "fields"),
        Stored("EvidencePoint", "posteriori.softmax.evidence", "fields"),
        Stored("SeparatedClasses", "posteriori.softmax.separation", "fields"),
        # solvers
        Stored("Automatic", "posteriori.solvers.automatic", "fields"),
        Stored("Newton", "posteriori.solvers.newton", "fields"),
        Stored("LBFGS", "posteriori.solvers.lbfgs", "fields"),
        Stored("GradientDescent", "posteriori.solvers.gradient_descent", "fields"),
        Stored("StochasticGradient", "posteriori.solvers.stochastic", "fields"),
        # partial_fit
        Stored(
            "Sequential",
            "posteriori.softmax.sequential",
            "attributes",
            ("_last", "precision", "average", "moments", "n_visited", "n_pass", "n_rows", "_first_rows"),
            lean=_without_first_rows,
        ),
        Stored("Averaged", "posteriori.solvers.stochastic", "fields"),
        Stored("RunningMoments", "posteriori.solvers.stochastic", "fields"),
        # priors, posteriors
        Stored("GaussianPrior", "posteriori.softmax.priors", "fields"),
        Stored("NormalInverseWishartPrior", "posteriori.gaussian.niw", "fields"),
        Stored("RidgePrior", "posteriori.gaussian.niw", "fields"),
        Stored("DiagonalPrecision", "posteriori.softmax.precision", "fields"),
        Stored("KroneckerPrecision", "posteriori.softmax.precision", "fields"),
        Stored("MatrixPrecision", "posteriori.softmax.precision", "fields"),
        Stored("Coordinates", "posteriori.softmax.coordinates", "fields"),
        Stored("FullPosterior", "posteriori.softmax.posterior", "attributes", ("mean", "basis", "common", "factor")),
        Stored(
            "KroneckerPosterior",
            "posteriori.softmax.posterior",
            "attributes",
            ("mean", "levels", "latent_basis", "_log_det_common", "spread", "directions", "shrunk"),
        ),
        Stored(
            "DiagonalPosterior",
            "posteriori.softmax.posterior",
            "attributes",
            ("mean", "precisions", "centre", "latent_basis"),
        ),
        Stored("WeightedDraws", "posteriori.softmax.importance", "attributes", ("thetas", "weights", "mean")),
        # Gaussian classes
        Stored("GaussianFit", "posteriori.gaussian.fit", "fields"),
        Stored("GaussianSolution", "posteriori.gaussian.fit", "fields"),
        Stored("KeptRows", "posteriori.gaussian.choice", "fields"),
        Stored("ClassDensities", "posteriori.gaussian.densities", "fields"),
        Stored("ClassStatistics", "posteriori.gaussian.statistics", "fields"),
        # Gaussian processes
        Stored("RBF", "posteriori.gp.kernels", "fields"),
        Stored("Matern", "posteriori.gp.kernels", "fields"),
        Stored("Linear", "posteriori.gp.kernels", "fields"),
        Stored("ARD", "posteriori.gp.kernels", "fields"),
        Stored("Constant", "posteriori.gp.kernels", "fields"),
        Stored("Sum", "posteriori.gp.kernels", "fields"),
        Stored("Product", "posteriori.gp.kernels", "fields"),
        Stored("Units", "posteriori.gp.inputs", "fields", type_name="InputUnits"),
        Stored("FittedGP", "posteriori.gp.predictive", "fields", deferred=True),
        Stored("FittedStack", "posteriori.gp.predictive", "fields", deferred=True),
        Stored("GPSolution", "posteriori.gp.predictive", "fields", deferred=True),
        Stored("SparseGP", "posteriori.gp.sparse", "fields", deferred=True),
        Stored("StackedGP", "posteriori.gp.stack", "fields", deferred=True),
        Stored("HiddenLayer", "posteriori.gp.stack", "fields", deferred=True),
        Stored("ArgmaxLikelihood", "posteriori.gp.likelihoods", "fields", deferred=True),
        Stored("SoftmaxLikelihood", "posteriori.gp.likelihoods", "fields", deferred=True),
        Stored("Rule", "posteriori.maths.argmax", "fields", deferred=True),
        Stored("Chunk", "posteriori.gp.ascent", "fields", deferred=True),
        # tables
        Stored("Encoding", "posteriori.tables.plans", "fields"),
        Stored("ColumnEncoding", "posteriori.tables.plans", "fields"),
        Stored("NumberPlan", "posteriori.tables.plans", "fields"),
        Stored("CategoryPlan", "posteriori.tables.plans", "fields"),
        Stored("DatePlan", "posteriori.tables.plans", "fields"),
        # decisions
        Stored(
            "Utility", "posteriori.decision.utility", "attributes", ("matrix", "states", "actions", "function")
        ),
        Stored("Calibration", "posteriori.decision.conformal", "fields"),
        Stored("SklearnCalibrated", "sklearn.calibration", "attributes",
               ("estimator", "calibrators", "classes", "method"), type_name="_CalibratedClassifier"),
        Stored("KFold", "sklearn.model_selection._split", "attributes", ("n_splits", "shuffle", "random_state")),
        Stored(
            "StratifiedKFold", "sklearn.model_selection._split", "attributes", ("n_splits", "shuffle", "random_state")
        ),
    ]  # fmt: skip


_BY_NAME = {stored.name: stored for stored in (*_estimators(), *_parts())}
_BY_KEY = {stored.key: stored for stored in _BY_NAME.values()}
