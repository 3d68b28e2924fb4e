"""Random hard problems: an estimator, rows to fit and rows to predict, all from one seed and one number.

Each problem is a random shape, a random kind of features that random troubles have befallen (columns repeated,
constant, far from zero, in absurd units), random labels and weights, in a random container, and a random estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

Rng = np.random.Generator

ALPHAS = (0.0, 1e-100, 1e-16, 1e-12, 1e-8, 1e-4, 1e-2, 1.0, 100.0, 1e6, 1e12)
TOLERANCES = (0.0, 1e-16, 1e-12, 1e-10, 1e-8, 1e-8, 1e-8, 1e-4, 1e-2)
EXPONENTS = (-300, -155, -100, -30, -8, 8, 30, 100, 150, 300)


@dataclass
class Problem:
    """One problem: what is fitted, to which rows, and what is predicted."""

    words: list[str]
    model: Any
    X: Any
    y: Any
    weight: np.ndarray | None
    new: list[Any]
    """Containers of new rows."""
    K: int
    dense: np.ndarray | None = None
    """The features as numbers, where they are."""

    @property
    def name(self) -> str:
        """Return the problem in words."""
        return ", ".join(self.words)


def pick(rng: Rng, values: Any) -> Any:
    """Return one of the values."""
    return values[int(rng.integers(len(values)))]


def chance(rng: Rng, p: float) -> bool:
    """Return True with this probability."""
    return bool(rng.random() < p)


def problem(seed: int, number: int, quick: bool = False) -> Problem:
    """Return the problem of this number; with `quick`, a tiny one and without Gaussian processes."""
    rng = np.random.default_rng([seed, number])
    if chance(rng, 0.05):
        return messy_table(rng)
    kind = pick(rng, ESTIMATORS if not quick else [name for name in ESTIMATORS if name != "gp"])
    larger = [] if quick else ["small"] if kind == "gp" else LARGER
    N, D, K = SHAPES[pick(rng, ["tiny"] * 5 + larger)](rng)
    if kind == "gp":
        N, D, K = min(N, 60), min(D, 6), min(K, 4)
    words = [f"{N} x {D}, K={K}"]
    X = features(rng, N, D, words)
    y, declared = labels(rng, X, K, words)
    weight = weights(rng, N, words)
    model = MODELS[kind](rng, declared, words)
    X = affordable(model, X, K, words)
    kept, X = contained(rng, X, words)
    new = [kept(X[: min(N, 50)]), kept(X[:1]), kept(moved(rng, X[: min(N, 20)]))]
    return Problem(words, model, kept(X), y, weight, new, K, X)


def affordable(model: Any, X: np.ndarray, K: int, words: list[str]) -> np.ndarray:
    """Return fewer columns where a matrix of all of them was asked for by name, and would take minutes."""
    parts = (model, getattr(model, "estimator", None))
    asked = {getattr(part, name, "") for part in parts for name in ASKED_BY_NAME}
    exact = any(getattr(getattr(part, "solver", None), "exact", None) for part in parts)
    by_name = exact or asked & {"full", "tied", "kronecker", "variational", "importance"}
    most = MOST_COEFFICIENTS // K if by_name else X.shape[1]
    if X.shape[1] > most:
        words.append(f"{most} columns")
    return X[:, :most]


MOST_COEFFICIENTS = 1500
ASKED_BY_NAME = ("covariance", "posterior", "approximation")


# Shapes

SHAPES: dict[str, Callable[[Rng], tuple[int, int, int]]] = {
    "tiny": lambda rng: (int(rng.integers(1, 30)), int(rng.integers(1, 6)), int(rng.integers(2, 6))),
    "small": lambda rng: (int(rng.integers(10, 300)), int(rng.integers(1, 25)), int(rng.integers(2, 11))),
    "wide": lambda rng: (int(rng.integers(2, 60)), int(10 ** rng.uniform(2, 3.48)), int(rng.integers(2, 6))),
    "classes": lambda rng: (int(rng.integers(20, 600)), int(rng.integers(1, 12)), int(rng.integers(20, 201))),
    "long": lambda rng: (int(rng.integers(1000, 12000)), int(rng.integers(1, 12)), int(rng.integers(2, 6))),
}
LARGER = ["small"] * 4 + ["wide"] * 2 + ["classes"] * 2 + ["long"]


# Features


def features(rng: Rng, N: int, D: int, words: list[str]) -> np.ndarray:
    """Return features (N, D) of a random kind, with random troubles."""
    kind = pick(rng, ("normal", "normal", "normal", "integers", "one-hot", "boolean", "zeros", "heavy"))
    words.append(kind)
    X = {
        "normal": lambda: rng.normal(size=(N, D)),
        "integers": lambda: rng.integers(-5, 6, (N, D)).astype(float),
        "one-hot": lambda: np.eye(D)[rng.integers(0, D, N)],
        "boolean": lambda: (rng.random((N, D)) < 0.3).astype(float),
        "zeros": lambda: rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.1),
        "heavy": lambda: rng.standard_cauchy((N, D)) ** 3,
    }[kind]()
    for trouble, befall in TROUBLES.items():
        if chance(rng, 0.13):
            words.append(trouble + befall(rng, X))
    return X


def some(rng: Rng, D: int) -> np.ndarray:
    """Return indices of some columns, often few, sometimes all."""
    return np.arange(D) if chance(rng, 0.3) else rng.integers(0, D, max(1, min(D, int(rng.integers(1, 4)))))


def duplicate(rng: Rng, X: np.ndarray) -> str:
    """Make some columns copies of others."""
    columns = some(rng, X.shape[1])
    X[:, columns] = X[:, rng.integers(0, X.shape[1], columns.size)]
    return ""


def combine(rng: Rng, X: np.ndarray) -> str:
    """Make some columns combinations of others, exactly or nearly."""
    noise = pick(rng, (0.0, 1e-13, 1e-7))
    for d in some(rng, X.shape[1])[:5]:
        X[:, d] = X @ rng.normal(size=X.shape[1]) + noise * rng.normal(size=len(X))
    return f" {noise:g}"


def hold(rng: Rng, X: np.ndarray) -> str:
    """Make some columns constant."""
    value = pick(rng, (0.0, 1.0, -3.7, 1e8))
    X[:, some(rng, X.shape[1])] = value
    return f" {value:g}"


def shift(rng: Rng, X: np.ndarray) -> str:
    """Move some columns far away."""
    by = pick(rng, (1e3, 1e8, -1e8, 1e14))
    X[:, some(rng, X.shape[1])] += by
    return f" {by:g}"


def scale(rng: Rng, X: np.ndarray) -> str:
    """Put some columns, or all, in other units."""
    exponent = pick(rng, EXPONENTS)
    with np.errstate(over="ignore", under="ignore"):
        X[:, some(rng, X.shape[1])] *= 10.0**exponent
        np.clip(X, -1e307, 1e307, out=X)
    return f" 1e{exponent}"


def repeat(rng: Rng, X: np.ndarray) -> str:
    """Make all rows copies of a few."""
    X[...] = X[rng.integers(0, max(1, min(3, len(X))), len(X))]
    return ""


TROUBLES = {
    "duplicated": duplicate,
    "collinear": combine,
    "constant": hold,
    "offset": shift,
    "repeated rows": repeat,
    "scaled": scale,
    "scaled too": scale,
}


def moved(rng: Rng, X: np.ndarray) -> np.ndarray:
    """Return rows that are unlike those of the fit."""
    with np.errstate(over="ignore", under="ignore"):
        Z = X * pick(rng, (0.0, -1.0, 1e3, 1e10, 1e150)) + pick(rng, (0.0, 0.0, 1.0, 1e10))
    return np.clip(Z, -1e307, 1e307)


def contained(rng: Rng, X: np.ndarray, words: list[str]) -> tuple[Callable[[np.ndarray], Any], np.ndarray]:
    """Return a function that puts rows into a container, and the rows as that container holds them."""
    kind = pick(rng, ("array",) * 6 + ("Fortran", "float32", "csr", "csc", "integer", "boolean", "pandas", "list"))
    if kind == "array":
        return np.ascontiguousarray, X
    words.append(kind)
    if kind == "Fortran":
        return np.asfortranarray, X
    if kind in ("float32", "integer", "boolean"):
        dtype = {"float32": np.float32, "integer": np.int64, "boolean": bool}[kind]
        limit = {"float32": 1e38, "integer": 2.0**62, "boolean": 1e307}[kind]

        def converted(Z: np.ndarray) -> np.ndarray:
            return np.clip(Z, -limit, limit).astype(dtype)

        return converted, converted(X).astype(float)
    if kind == "pandas":
        import pandas as pd

        return lambda Z: pd.DataFrame(Z, columns=[f"x{d}" for d in range(Z.shape[1])]), X
    if kind == "list":
        return lambda Z: Z.tolist(), X
    return {"csr": sp.csr_array, "csc": sp.csc_array}[kind], X


# Labels and weights


def labels(rng: Rng, X: np.ndarray, K: int, words: list[str]) -> tuple[Any, Any]:
    """Return labels or distributions of K classes, and the classes that are declared."""
    kind = pick(rng, ("random", "random", "linear", "linear", "separable", "rare", "one", "empty", "soft", "counts"))
    words.append(f"{kind} labels")
    N = len(X)
    with np.errstate(all="ignore"):
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
    Z = np.nan_to_num(Z, nan=0.0, posinf=0.0, neginf=0.0)
    score = Z @ rng.normal(size=(X.shape[1], K))
    if kind in ("soft", "counts"):
        Y = rng.dirichlet(np.full(K, pick(rng, (0.05, 1.0))), N)
        if kind == "counts":
            return rng.multinomial(int(rng.integers(1, 50)), Y).astype(float), None
        return Y, None
    noise = 0.0 if kind == "separable" else 1.0
    y = (score + noise * rng.gumbel(size=(N, K))).argmax(axis=1)
    if kind == "random":
        y = rng.integers(0, K, N)
    if kind == "rare":
        y = np.where(rng.random(N) < 0.97, 0, rng.integers(0, K, N))
    if kind == "one":
        y[:] = 0
    named = chance(rng, 0.3)
    names = np.array([f"class {k}" for k in range(K)]) if named else np.arange(K)
    declared = names if kind in ("empty", "one", "rare") or chance(rng, 0.2) else None
    if kind == "empty":
        y %= max(1, K - 1)
    return names[y], declared


def weights(rng: Rng, N: int, words: list[str]) -> np.ndarray | None:
    """Return weights of rows, or None."""
    kind = pick(rng, (None,) * 14 + ("random", "zeros", "all zero", "huge", "tiny", "mixed", "absurd"))
    if kind is None:
        return None
    words.append(f"{kind} weights")
    c = rng.random(N)
    return {
        "random": c,
        "zeros": c * (rng.random(N) < 0.5),
        "all zero": 0.0 * c,
        "huge": 1e12 * c,
        "tiny": 1e-12 * c,
        "mixed": 10.0 ** rng.uniform(-12, 12, N),
        "absurd": c * pick(rng, (1e-300, 1e-100, 1e100, 1e300)),
    }[kind]


# Estimators

ESTIMATORS = ["softmax"] * 34 + ["bayes"] * 28 + ["gaussian"] * 22 + ["meta"] * 10 + ["sequential"] * 4 + ["gp"]


def described(cls: type, words: list[str], **options: Any) -> Any:
    """Make an object and add how it was made to the words."""
    given = ", ".join(f"{name}={value!r}" for name, value in options.items() if name != "classes")
    words.append(f"{cls.__name__}({given})")
    return cls(**options)


def solver(rng: Rng) -> Any:
    """Return the name of a solver, or one with parameters."""
    from posteriori import LBFGS, GradientDescent, Newton, StochasticGradient

    return pick(
        rng,
        ("auto",) * 6
        + ("newton", "lbfgs", "gd", "sgd", Newton(exact=True), Newton(exact=False), LBFGS(memory=2))
        + (StochasticGradient(batch_size=1, epochs=3), StochasticGradient(epochs=10, averaging=False))
        + (GradientDescent(schedule="fixed"), GradientDescent(schedule="decreasing")),
    )


def softmax(rng: Rng, declared: Any, words: list[str]) -> Any:
    """Return a point estimate's classifier."""
    from posteriori import SoftmaxRegression

    options = {"alpha": pick(rng, ALPHAS), "solver": solver(rng), "tol": pick(rng, TOLERANCES)}
    if chance(rng, 0.2):
        options["fit_intercept"] = False
    if chance(rng, 0.2):
        options["penalize_intercept"] = pick(rng, (True, 1e-100, 1e-8, 1.0, 1e12))
    if chance(rng, 0.2):
        options["max_iter"] = pick(rng, (0, 1, 5))
    if chance(rng, 0.1):
        options["class_weight"] = "balanced"
    return described(SoftmaxRegression, words, **options, classes=declared, n_jobs=pick(rng, (1, 1, None)))


def bayes(rng: Rng, declared: Any, words: list[str]) -> Any:
    """Return a Bayesian linear classifier."""
    from posteriori import BayesianSoftmaxRegression, GaussianPrior

    number = pick(rng, ALPHAS)
    scaled = GaussianPrior(precision=number, autoscale=True)
    prior = pick(rng, ("evidence", "evidence", "ard", "jeffreys", number, scaled))
    options = {
        "prior": prior,
        "approximation": pick(rng, ("auto", "auto", "laplace", "variational", "importance")),
        "posterior": pick(rng, ("auto", "auto", "full", "kronecker", "diagonal")),
        "predictive": pick(rng, ("quasi", "sample", "probit", "plugin")),
        "random_state": 0,
    }
    if chance(rng, 0.2):
        options["fit_intercept"] = False
    if chance(rng, 0.3):
        options |= {"tol": pick(rng, TOLERANCES), "solver": solver(rng)}
    if chance(rng, 0.1):
        options["label_noise"] = pick(rng, (1e-3, 0.2))
    return described(BayesianSoftmaxRegression, words, **options, classes=declared, n_jobs=1)


def gaussian(rng: Rng, declared: Any, words: list[str]) -> Any:
    """Return a classifier of Gaussian classes."""
    from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior

    estimate = pick(rng, ("mle", "map", "bayes", "bayes"))
    options = {
        "covariance": pick(rng, ("auto", "full", "diagonal", "spherical", "tied", "tied_diagonal")),
        "estimate": estimate,
    }
    if estimate != "mle":
        options["prior"] = pick(
            rng,
            (
                *("predictive", "predictive", "evidence"),
                *(NormalInverseWishartPrior(), NormalInverseWishartPrior(kappa=1e-8)),
                *(RidgePrior(), RidgePrior(strength=1e-12), RidgePrior(strength=1e12)),
            ),
        )
    return described(GaussianClassifier, words, **options, classes=declared, n_jobs=1)


def gp(rng: Rng, declared: Any, words: list[str]) -> Any:
    """Return a Gaussian process, of few steps."""
    from posteriori import GPClassifier

    return described(GPClassifier, words, n_inducing=8, max_iter=5, classes=declared, random_state=0)


def meta(rng: Rng, declared: Any, words: list[str]) -> Any:
    """Return an estimator around an estimator."""
    from posteriori import CalibratedClassifier, ConformalClassifier, UtilityClassifier

    inner = pick(rng, (softmax, softmax, gaussian, bayes))(rng, declared, words)
    kind = pick(rng, (CalibratedClassifier, ConformalClassifier, UtilityClassifier))
    options: dict[str, Any] = {}
    if kind is CalibratedClassifier:
        options = {"method": pick(rng, ("temperature", "vector", "dirichlet", "isotonic")), "cv": pick(rng, (2, 3))}
    if kind is ConformalClassifier:
        options = {"by_class": chance(rng, 0.3), "random_state": 0, "alpha": pick(rng, (0.01, 0.1, 0.5))}
    words.append(kind.__name__ + str(options))
    return kind(inner, **options)


def sequential(rng: Rng, declared: Any, words: list[str]) -> Any:
    """Return an estimator that `partial_fit` is called of."""
    words.append("partial_fit")
    return pick(rng, (softmax, gaussian))(rng, declared, words)


MODELS = {"softmax": softmax, "bayes": bayes, "gaussian": gaussian, "gp": gp, "meta": meta, "sequential": sequential}


# Tables


def messy_table(rng: Rng) -> Problem:
    """Return a table of mixed columns, and a pipeline that encodes it."""
    import pandas as pd
    from sklearn.pipeline import make_pipeline

    from posteriori import TableEncoder

    N, K = int(rng.integers(2, 120)), int(rng.integers(2, 6))
    words = [f"table of {N}, K={K}"]
    columns: dict[str, Any] = {}
    for d in range(int(rng.integers(1, 8))):
        kind = pick(rng, tuple(COLUMNS))
        words.append(kind)
        columns[f"{kind} {d}"] = COLUMNS[kind](rng, N)
    X = pd.DataFrame(columns)
    y, declared = rng.integers(0, K, N), None
    model = pick(rng, (softmax, bayes, gaussian))(rng, declared, words)
    pipeline = make_pipeline(TableEncoder(), model)
    new = [X.head(20), X.head(1), X.sample(min(N, 10), random_state=0).iloc[::-1]]
    return Problem(words, pipeline, X, y, None, new, K)


def with_gaps(values: Any, rng: Rng) -> np.ndarray:
    """Return the values with some missing."""
    out = np.array(values, dtype=object)
    out[rng.random(len(out)) < 0.2] = None
    return out


COLUMNS: dict[str, Callable[[Rng, int], Any]] = {
    "number": lambda rng, N: rng.normal(size=N),
    "scaled": lambda rng, N: rng.normal(size=N) * 10.0 ** float(pick(rng, (-155, -30, 30, 150))),
    "gaps": lambda rng, N: np.where(rng.random(N) < 0.3, np.nan, rng.normal(size=N)),
    "nothing": lambda rng, N: np.full(N, np.nan),
    "category": lambda rng, N: rng.choice(["a", "b", "c"], N),
    "missing category": lambda rng, N: with_gaps(rng.choice(["a", "b", "c"], N), rng),
    "identifier": lambda rng, N: np.array([f"id-{i}" for i in range(N)]),
    "boolean": lambda rng, N: rng.random(N) < 0.5,
    "constant": lambda rng, N: np.full(N, "same"),
    "date": lambda rng, N: np.datetime64("2020-01-01") + rng.integers(0, 1000, N).astype("timedelta64[D]"),
    "mixed": lambda rng, N: np.array([pick(rng, (1, "1", 2.5, "x", None)) for _ in range(N)], dtype=object),
    "row number": lambda rng, N: np.arange(N),
}
