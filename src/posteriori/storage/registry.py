"""Which classes may be in a file, each by a short name that never changes. Nothing else is stored, or loaded.

A class is added by one line. Its name in files stays when it is moved or renamed; what is stored of it may grow by
fields that have a default, all else is a new format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

__all__ = ["Deferred", "Stored", "by_name", "of_type"]

Kind = Literal["estimator", "fields", "attributes", "enum"]


@dataclass(frozen=True)
class Stored:
    """The way in which objects of a class are stored.

    Attributes
    ----------
    name : str
        The name of the class in files.
    home : str
        The module that defines the class; imported when an object of it is made.
    kind : {"estimator", "fields", "attributes", "enum"}
        What is stored: the constructor's parameters and all that was fitted; the fields of a dataclass or named tuple;
        the attributes named here; a member by its name.
    attributes : tuple of str
        The attributes stored by "attributes"; others of the object are caches, and made again.
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
    kind: Kind
    attributes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    """Attributes stored by "attributes" where they are not None, their default."""
    lean: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    prepare: Callable[[Any], Any] | None = None
    finish: Callable[[Any], Any] | None = None
    deferred: bool = False
    type_name: str = ""
    """Name of the class, where it is not the name in files."""

    @property
    def key(self) -> tuple[str, str]:
        """Module and name of the class."""
        return self.home, self.type_name or self.name

    @property
    def type(self) -> Any:
        """The class itself."""
        return getattr(import_module(self.home), self.type_name or self.name)


class Deferred:
    """An object that is made when something of it is first asked for: a file is read without importing JAX.

    Parameters
    ----------
    make : callable
        Returns the object; called once.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._made: Any = None

    def made(self) -> Any:
        """The object itself, made now if it was not yet."""
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_make", "_made"):  # what copying and pickling look for
            raise AttributeError(name)
        return getattr(self.made(), name)

    def __repr__(self) -> str:
        return repr(self.made())

    def __reduce__(self) -> Any:
        return _itself, (self.made(),)


def _itself(value: Any) -> Any:
    return value


def by_name(name: Any) -> Stored | None:
    """The entry of the class that has this name in files, or None."""
    return _BY_NAME.get(name) if isinstance(name, str) else None


def of_type(cls: type) -> Stored | None:
    """The entry of a class, or None; a class derived from one that is stored may hold more, and has no entry."""
    return _BY_KEY.get((cls.__module__, cls.__qualname__))


def _seen_in_parts(state: dict[str, Any]) -> dict[str, Any]:
    """In files a Gaussian classifier holds its statistics, its fit and none of its rows, each under a name."""
    stored: dict[str, Any] = {}
    for name, value in state.items():
        if name == "seen_":
            stored |= {"_statistics": value.statistics, "_kept": value.kept.without_rows(), "_fitted": value.fit}
        else:
            stored[name] = value
    return stored


def _seen_in_one(model: Any) -> None:
    """The reverse of `_seen_in_parts`, in the same order of attributes."""
    state = dict(vars(model))
    if "_statistics" not in state:
        return
    statistics, kept, fit = (state.pop(name) for name in ("_statistics", "_kept", "_fitted"))
    seen = import_module("posteriori.gaussian.fit").SeenRows.restored(statistics, kept, state["classes_"], fit)
    before = {name: state.pop(name) for name in list(state) if name not in ("classes_", "class_count_")}
    vars(model).clear()
    vars(model).update(before | {"seen_": seen} | state)


def _without_first_rows(state: dict[str, Any]) -> dict[str, Any]:
    """Leave out the first rows, which partial_fit keeps to recognise a second pass."""
    return state | {"_first_rows": None}


def _without_left_out(state: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a stack predicted for the rows of its fit, and members that take no part."""
    return {name: value for name, value in state.items() if name not in ("left_out_", "judged_")}


def _without_folds(state: dict[str, Any]) -> dict[str, Any]:
    """Leave out what folds said of single rows."""
    return {name: value for name, value in state.items() if name != "_folds"}


def _without_function(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "f_"}


def _interpolating(isotonic: Any) -> None:
    if hasattr(isotonic, "X_thresholds_"):
        isotonic._build_f(isotonic.X_thresholds_, isotonic.y_thresholds_)


_POSTERIOR_FIELDS = {
    "coordinates": "_coordinates",
    "mode": "_mode",
    "posterior": "_posterior",
    "precision": "_precision",
    "class_sizes": "_class_sizes",
    "offset": "_offset",
    "seed": "_drawn_from",
}
"""Fields of a FittedSoftmax and their names in files, which are older than the class."""


def _flat_posterior(state: dict[str, Any]) -> dict[str, Any]:
    """In files the parts of a Bayesian softmax model stand beside its other attributes."""
    fitted = state.get("fitted_")
    rest = {name: value for name, value in state.items() if name != "fitted_"}
    return (
        rest if fitted is None else rest | {there: getattr(fitted, here) for here, there in _POSTERIOR_FIELDS.items()}
    )


def _gathered_posterior(model: Any) -> None:
    """The parts of a Bayesian softmax model, as files have them, become one object."""
    state = vars(model)
    if "_posterior" in state:
        from posteriori.softmax.fitted import FittedSoftmax

        model.fitted_ = FittedSoftmax(**{here: state.pop(there) for here, there in _POSTERIOR_FIELDS.items()})


def _estimators() -> list[Stored]:
    sk = "sklearn"
    return [
        Stored("SoftmaxRegression", "posteriori.softmax.regression", "estimator"),
        Stored(
            "BayesianSoftmaxRegression", "posteriori.softmax.bayesian", "estimator",
            lean=_flat_posterior, finish=_gathered_posterior,
        ),
        Stored(
            "GaussianClassifier", "posteriori.gaussian.classifier", "estimator",
            lean=_seen_in_parts, finish=_seen_in_one,
        ),
        Stored("GPClassifier", "posteriori.gp.classifier", "estimator"),
        Stored("DeepGPClassifier", "posteriori.gp.deep_classifier", "estimator"),
        Stored("ForestClassifier", "posteriori.trees.forest_classifier", "estimator"),
        Stored("BoostingClassifier", "posteriori.trees.boosting_classifier", "estimator", lean=_without_folds),
        Stored("TableEncoder", "posteriori.tables.encoder", "estimator"),
        Stored("UtilityClassifier", "posteriori.meta.utility_classifier", "estimator"),
        Stored("CalibratedClassifier", "posteriori.meta.calibrated_classifier", "estimator"),
        Stored("StackedClassifier", "posteriori.meta.stacked_classifier", "estimator", lean=_without_left_out),
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
        Stored("FitStatistics", "posteriori.softmax.fitted", "fields"),
        Stored("TraceEntry", "posteriori.solvers.solution", "fields"),
        Stored("EvidencePoint", "posteriori.softmax.evidence", "fields"),
        Stored("StrengthPoint", "posteriori.softmax.strength", "fields"),
        Stored("SeparatedClasses", "posteriori.softmax.certificate", "fields"),
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
        Stored("FlatPrior", "posteriori.softmax.flat", "fields"),
        Stored("JeffreysPrior", "posteriori.softmax.jeffreys", "attributes"),
        Stored("NormalInverseWishartPrior", "posteriori.gaussian.niw", "fields"),
        Stored("RidgePrior", "posteriori.gaussian.niw", "fields"),
        Stored("DiagonalPrecision", "posteriori.softmax.precision", "fields"),
        Stored("KroneckerPrecision", "posteriori.softmax.precision", "fields"),
        Stored("MatrixPrecision", "posteriori.softmax.precision", "fields"),
        Stored("Coordinates", "posteriori.softmax.coordinates", "fields"),
        Stored("FullPosterior", "posteriori.softmax.posterior", "attributes", ("mean", "basis", "common", "factor"),
               optional=("tilt", "root", "limit")),
        Stored("CovarianceInBasis", "posteriori.softmax.covariance", "attributes", ("mean", "inner", "basis"),
               optional=("tilt", "free")),
        Stored(
            "KroneckerPosterior",
            "posteriori.softmax.structured",
            "attributes",
            ("mean", "levels", "latent_basis", "_log_det_common", "spread", "directions", "shrunk"),
        ),
        Stored(
            "DiagonalPosterior",
            "posteriori.softmax.structured",
            "attributes",
            ("mean", "precisions", "centre", "latent_basis"),
        ),
        Stored("ClassPosterior", "posteriori.softmax.classes", "attributes", ("mean", "factors", "latent_basis")),
        Stored("MixturePosterior", "posteriori.softmax.mixture", "attributes",
               ("members", "weights", "mean", "structure")),
        Stored("RowSpacePosterior", "posteriori.softmax.row_space", "attributes",
               ("inner", "basis", "alpha", "mean", "structure", "gaussian")),
        Stored("WeightedDraws", "posteriori.softmax.importance", "attributes", ("thetas", "weights", "mean")),
        # Gaussian classes
        Stored("GaussianFit", "posteriori.gaussian.fit", "fields"),
        Stored("GaussianSolution", "posteriori.gaussian.fit", "fields"),
        Stored("KeptRows", "posteriori.gaussian.choice", "fields"),
        Stored("ClassDensities", "posteriori.gaussian.densities", "fields"),
        Stored("ClassStatistics", "posteriori.gaussian.statistics", "fields"),
        Stored("RootStatistics", "posteriori.gaussian.roots", "fields"),
        Stored("RowSpace", "posteriori.gaussian.row_space", "fields"),
        # Gaussian processes
        Stored("RBF", "posteriori.gp.kernels", "fields"),
        Stored("RationalQuadratic", "posteriori.gp.kernels", "fields"),
        Stored("Matern", "posteriori.gp.kernels", "fields"),
        Stored("Linear", "posteriori.gp.kernels", "fields"),
        Stored("Polynomial", "posteriori.gp.kernels", "fields"),
        Stored("ARD", "posteriori.gp.kernels", "fields"),
        Stored("Constant", "posteriori.gp.kernels", "fields"),
        Stored("Sum", "posteriori.gp.kernels", "fields"),
        Stored("Product", "posteriori.gp.kernels", "fields"),
        Stored("CategoryColumns", "posteriori.gp.categories", "fields"),
        Stored("Units", "posteriori.gp.inputs", "fields", type_name="InputUnits"),
        Stored("FittedGP", "posteriori.gp.predictive", "fields", deferred=True),
        Stored("FittedStack", "posteriori.gp.predictive", "fields", deferred=True),
        Stored("FittedRows", "posteriori.gp.all_rows", "fields"),
        Stored("FittedMixture", "posteriori.gp.all_rows", "fields"),
        Stored("FittedInducing", "posteriori.gp.inducing", "fields"),
        Stored("ArgmaxNode", "posteriori.gp.output", "fields"),
        Stored("GPSolution", "posteriori.gp.solution", "fields"),
        Stored("SparseGP", "posteriori.gp.sparse", "fields", deferred=True),
        Stored("StackedGP", "posteriori.gp.stack", "fields", deferred=True),
        Stored("HiddenLayer", "posteriori.gp.stack", "fields", deferred=True),
        Stored("ArgmaxLikelihood", "posteriori.gp.likelihoods", "fields", deferred=True),
        Stored("SoftmaxLikelihood", "posteriori.gp.likelihoods", "fields", deferred=True),
        Stored("Rule", "posteriori.maths.argmax", "fields", deferred=True),
        Stored("Chunk", "posteriori.gp.solution", "fields"),
        # trees
        Stored("TreeArrays", "posteriori.trees.arrays", "fields"),
        Stored("FittedForest", "posteriori.trees.forest", "fields"),
        Stored("ForestSolution", "posteriori.trees.forest", "fields"),
        Stored("FittedBoosting", "posteriori.trees.boosting", "fields"),
        Stored("BoostingSolution", "posteriori.trees.boosting", "fields"),
        # tables
        Stored("Encoding", "posteriori.tables.plans", "fields"),
        Stored("ColumnEncoding", "posteriori.tables.plans", "fields"),
        Stored("NumberPlan", "posteriori.tables.plans", "fields"),
        Stored("CategoryPlan", "posteriori.tables.plans", "fields"),
        Stored("DatePlan", "posteriori.tables.plans", "fields"),
        # stacks
        Stored("StackMember", "posteriori.meta.stacked_classifier", "fields"),
        Stored("StackGain", "posteriori.meta.stacked_classifier", "fields"),
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
