"""Robust and cluster-robust standard errors, against statsmodels and the formula written out."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import scipy.sparse as sp
import statsmodels.api as sm
from scipy.special import softmax
from tests.softmax.test_flat import PARTY, VOTES, figures, maximum_likelihood, random_problem

from posteriori import BayesianSoftmaxRegression, GaussianPrior
from posteriori.rows import arrow
from posteriori.softmax import sandwich

pytestmark = pytest.mark.filterwarnings("ignore::posteriori.ApproximationWarning")

X, Y = random_problem(30, N=240, D=3, K=3)
GROUPS = np.random.default_rng(3).integers(0, 24, len(X))
TABLE = pd.DataFrame(X, columns=["a", "b", "c"])


@pytest.fixture(scope="module")
def flat():
    return BayesianSoftmaxRegression("flat").fit(X, Y)


@pytest.mark.parametrize("errors", ["HC0", "HC1", "cluster"])
@pytest.mark.parametrize("K", [2, 7])
def test_statsmodels(errors, K):
    y = PARTY if K == 7 else (PARTY > 3).astype(int)
    groups = VOTES["age"].to_numpy() if errors == "cluster" else None
    result = maximum_likelihood(
        VOTES, y, cov_type=errors, **({} if groups is None else {"cov_kwds": {"groups": groups}})
    )
    table = (
        BayesianSoftmaxRegression("flat").fit(VOTES, y).summary("reference", errors=errors, X=VOTES, y=y, groups=groups)
    )
    for ours, theirs in (("mean", "params"), ("sd", "bse"), ("z", "tvalues"), ("p", "pvalues")):
        np.testing.assert_allclose(table[ours], figures(result, theirs), rtol=1e-6, atol=1e-9, err_msg=ours)
    ends = np.asarray(result.conf_int()).reshape(-1, 2)
    np.testing.assert_allclose(table[["lower", "upper"]], ends, rtol=1e-6, atol=1e-8)


def test_frequencies_as_in_statsmodels():
    """Its generalised linear models take frequencies: products of scores are multiplied once, group sums add up."""
    y, c = (Y > 0).astype(int), np.random.default_rng(0).integers(1, 5, len(Y)).astype(float)
    model = BayesianSoftmaxRegression("flat").fit(X, y, sample_weight=c)
    glm = sm.GLM(y, sm.add_constant(X, prepend=False), family=sm.families.Binomial(), freq_weights=c)
    table = model.summary("reference", errors="HC0", X=X, y=y, sample_weight=c)
    np.testing.assert_allclose(table["sd"], glm.fit(tol=1e-14, cov_type="HC0").bse, rtol=1e-6)


# The formula


def formula(model, y, c, prior=0.0, groups=None):
    """H^{-1} M H^{-1} over all coefficients, class by class; the pseudo-inverse where nothing holds them."""
    Z, K = np.column_stack([X, np.ones(len(X))]), len(model.classes_)
    P = softmax(Z @ np.column_stack([model.coef_, model.intercept_]).T, axis=1)
    H = sum(w * np.kron(np.diag(p) - np.outer(p, p), np.outer(z, z)) for w, p, z in zip(c, P, Z, strict=True))
    bread = np.linalg.pinv(H + prior, rcond=1e-12, hermitian=True)
    scores = np.einsum("nk,nd->nkd", P - np.eye(K)[y], Z).reshape(len(Z), -1)
    if groups is None:
        meat = scores.T @ (scores * c[:, None])
    else:
        sums = np.stack([(scores * c[:, None])[groups == g].sum(axis=0) for g in np.unique(groups)])
        G, N, p = len(sums), c.sum(), (K - 1) * Z.shape[1]
        meat = sums.T @ sums * G / (G - 1) * (N - 1) / (N - p)
    return bread @ meat @ bread


def sd(covariance, C):
    blocks = covariance.reshape(3, 4, 3, 4)
    return np.sqrt(np.einsum("mk,kdld,ml->md", C, blocks, C)).ravel()


CODINGS = {
    "symmetric": np.eye(3),
    "sum": np.eye(3) - 1 / 3,
    "reference": np.array([[-1, 1, 0], [-1, 0, 1]]),
}


@pytest.mark.parametrize("errors", ["HC0", "cluster"])
@pytest.mark.parametrize("coding", CODINGS)
def test_formula(flat, errors, coding):
    groups = GROUPS if errors == "cluster" else None
    table = flat.summary(coding, errors=errors, X=X, y=Y, groups=groups)
    expected = sd(formula(flat, Y, np.ones(len(Y)), groups=groups), CODINGS[coding])
    np.testing.assert_allclose(table["sd"], expected, rtol=1e-8)
    pair = flat.contrast(2, 1, errors=errors, X=X, y=Y, groups=groups)
    np.testing.assert_allclose(pair["sd"], sd(formula(flat, Y, np.ones(len(Y)), groups=groups), np.array([[0, -1, 1]])))


PRIORS = {
    "number": 2.0,
    "precisions of each class": GaussianPrior(precision=np.arange(1.0, 10.0).reshape(3, 3)),
    "mean": GaussianPrior(mean=np.ones((3, 3)), precision=3.0),
}


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize(
    "way", [{"approximation": "laplace"}, {"approximation": "variational"}, {"posterior": "diagonal"}]
)
def test_under_a_prior_it_is_the_sampling_error_of_the_mode(name, way):
    model = BayesianSoftmaxRegression(PRIORS[name], tol=1e-14, **way).fit(X, Y)
    values = np.column_stack([np.broadcast_to(model.prior_.precision, (3, 3)), np.zeros(3)])
    u = np.append(X.mean(axis=0), 1.0)  # the intercepts' part is about the mean row
    R = np.diag(values.ravel()) + np.kron(np.eye(3), np.outer(u, u)) * model.prior_.intercept_precision
    for coding, C in CODINGS.items():
        table = model.summary(coding, errors="HC0", X=X, y=Y)
        np.testing.assert_allclose(table["sd"], sd(formula(model, Y, np.ones(len(Y)), R), C), rtol=1e-6)
        mode = C @ np.column_stack([model.coef_, model.intercept_])
        np.testing.assert_allclose(table["mean"], mode.ravel(), atol=1e-9)
    assert "p" in table


def test_where_the_model_is_right_all_errors_agree():
    X, y = random_problem(31, N=40_000)
    model = BayesianSoftmaxRegression("flat").fit(X, y)
    usual, robust = model.summary("sum"), model.summary("sum", errors="HC0", X=X, y=y)
    np.testing.assert_allclose(robust["sd"], usual["sd"], rtol=0.03)


def test_duplicated_rows_are_one_group():
    """Every row twice halves the usual variance, which is wrong; with a group for each pair it stays as it was."""
    double, labels, pairs = np.repeat(X, 2, axis=0), np.repeat(Y, 2), np.repeat(np.arange(len(X)), 2)
    once = BayesianSoftmaxRegression("flat").fit(X, Y)
    twice = BayesianSoftmaxRegression("flat").fit(double, labels)
    ours = twice.summary("sum", errors="cluster", X=double, y=labels, groups=pairs)["sd"]
    N, p = len(X), 8
    factor = np.sqrt(N / (N - 1) * (2 * N - 1) / (2 * N - p))
    np.testing.assert_allclose(ours, factor * once.summary("sum", errors="HC0", X=X, y=Y)["sd"], rtol=1e-8)


@pytest.mark.parametrize("errors", ["HC0", "cluster"])
def test_weights_counts_and_soft_labels_are_rows(errors):
    c = np.random.default_rng(0).integers(0, 4, len(Y))
    groups = GROUPS if errors == "cluster" else None

    def table(X, y, c=None, groups=groups):
        model = BayesianSoftmaxRegression("flat").fit(X, y, sample_weight=c)
        return model.summary("sum", errors=errors, X=X, y=y, sample_weight=c, groups=groups)["sd"]

    repeated = np.repeat(np.arange(len(X)), c)
    expected = table(X[repeated], Y[repeated], groups=None if groups is None else groups[repeated])
    np.testing.assert_allclose(table(X, Y, c), expected, rtol=1e-8)
    np.testing.assert_allclose(table(X, np.eye(3)[Y] * c[:, None]), expected, rtol=1e-8)
    soft = np.random.default_rng(1).dirichlet(np.ones(3), len(X))
    apart = None if groups is None else np.repeat(groups, 3)
    expected = table(np.repeat(X, 3, axis=0), np.tile(np.arange(3), len(X)), soft.ravel(), apart)
    np.testing.assert_allclose(table(X, soft), expected, rtol=1e-8)


def test_weights_of_a_survey_are_groups_of_one_row():
    """Weights that are not numbers of rows: their squares, as in the linearised variance of surveys."""
    c = np.random.default_rng(5).uniform(0.2, 3.0, len(Y))
    model = BayesianSoftmaxRegression("flat").fit(X, Y, sample_weight=c)
    table = model.summary("sum", errors="cluster", X=X, y=Y, sample_weight=c, groups=np.arange(len(Y)))
    expected = sd(formula(model, Y, c, groups=np.arange(len(Y))), CODINGS["sum"])
    np.testing.assert_allclose(table["sd"], expected, rtol=1e-8)


def test_groups_of_one_row_have_the_small_sample_factor(flat):
    """N / (N - p), which books call HC1; statsmodels leaves it out of models fitted by likelihood."""
    one = flat.summary("sum", errors="cluster", X=X, y=Y, groups=np.arange(len(Y)))["sd"]
    for name in ("HC0", "HC1"):
        plain = flat.summary("sum", errors=name, X=X, y=Y)["sd"]
        np.testing.assert_allclose(one**2 / plain**2, len(Y) / (len(Y) - 8), rtol=1e-10)


def test_class_weights_of_the_fit_are_applied_again():
    model = BayesianSoftmaxRegression("flat", class_weight={0: 2.0}).fit(X, Y)
    table = model.summary("sum", errors="HC0", X=X, y=Y)
    np.testing.assert_allclose(
        table["sd"], sd(formula(model, Y, np.where(Y == 0, 2.0, 1.0)), CODINGS["sum"]), rtol=1e-8
    )


def test_offset_of_another_class_prior_does_not_matter(flat):
    other = flat.with_class_prior([0.5, 0.3, 0.2])
    ours = other.summary("sum", errors="HC0", X=X, y=Y)["sd"]
    np.testing.assert_allclose(ours, flat.summary("sum", errors="HC0", X=X, y=Y)["sd"], rtol=1e-12)


# Containers

NAMED = TABLE.assign(
    kind=np.array(["x", "y", "z"])[Y], weight=np.arange(len(X)) % 3 + 1.0, county=[f"c{g}" for g in GROUPS]
)
CONTAINERS = {
    "polars": pl.from_pandas,
    "Arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    "data set": lambda table: ds.dataset(pa.Table.from_pandas(table, preserve_index=False)),
    "Dask": lambda table: dd.from_pandas(table, npartitions=3),
}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("errors", ["HC0", "cluster"])
def test_columns_by_name(kind, errors, monkeypatch):
    monkeypatch.setattr(arrow, "_HELD_BYTES", 0)
    monkeypatch.setattr(sandwich, "_TAKEN_BYTES", 1000 * 8)
    plain = BayesianSoftmaxRegression("flat").fit(TABLE, NAMED["kind"], NAMED["weight"])
    groups = NAMED["county"] if errors == "cluster" else None
    rows = {"X": TABLE, "y": NAMED["kind"], "sample_weight": NAMED["weight"], "groups": groups}
    expected = plain.summary("reference", errors=errors, **rows)
    put = CONTAINERS[kind]
    model = BayesianSoftmaxRegression("flat").fit(put(NAMED.drop(columns="county")), "kind", "weight")
    again = put(NAMED if errors == "cluster" else NAMED.drop(columns="county"))
    named = {"y": "kind", "sample_weight": "weight", "groups": "county" if errors == "cluster" else None}
    table = model.summary("reference", errors=errors, X=again, **named)
    pd.testing.assert_frame_equal(table, expected, rtol=1e-7, atol=1e-9)
    effects = model.marginal_effects(again, errors=errors, **named)
    ours = plain.marginal_effects(errors=errors, **rows)
    pd.testing.assert_frame_equal(effects, ours, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("errors", ["HC0", "cluster"])
def test_arrays(errors, flat):
    groups = GROUPS if errors == "cluster" else None
    expected = flat.summary("sum", errors=errors, X=X, y=Y, groups=groups)["sd"]
    chunks = da.from_array(X, chunks=(70, 3))
    for rows, labels in ((sp.csr_array(X), Y), (X.tolist(), Y.tolist()), (chunks, da.from_array(Y, chunks=70))):
        table = flat.summary("sum", errors=errors, X=rows, y=labels, groups=groups)
        np.testing.assert_allclose(table["sd"], expected, rtol=1e-9)


# Effects


@pytest.mark.parametrize("at", ["overall", "mean"])
def test_draws_and_slopes_agree_where_rows_are_many(at):
    X, y = random_problem(32, N=4000)
    model = BayesianSoftmaxRegression(1.0, approximation="laplace").fit(X, y)
    drawn = model.marginal_effects(X, at=at)
    slopes = model.marginal_effects(X, at=at, method="delta")
    assert (np.abs(drawn["mean"] - slopes["mean"]) < 0.2 * slopes["sd"]).all()
    np.testing.assert_allclose(drawn["sd"], slopes["sd"], rtol=0.15)


@pytest.mark.parametrize("structure", ["full", "kronecker", "diagonal"])
def test_slopes_of_effects_by_differences(structure):
    """The delta method with the covariance of any posterior, at the mean row: J S J^T with J by finite differences."""
    model = BayesianSoftmaxRegression(0.5, posterior=structure, approximation="laplace").fit(X, Y)
    row, theta = np.append(X.mean(axis=0), 1.0), np.column_stack([model.coef_, model.intercept_])

    def effects(theta):
        p = softmax(theta @ row)
        return (p[:, None] * (theta[:, :3] - p @ theta[:, :3])).ravel()

    step = 1e-6 * np.eye(12).reshape(12, 3, 4)
    J = np.stack([(effects(theta + h) - effects(theta - h)) / 2e-6 for h in step], axis=1)
    table = model.marginal_effects(X, at="mean", method="delta")
    np.testing.assert_allclose(table["mean"], effects(theta), atol=1e-8)
    np.testing.assert_allclose(table["sd"], np.sqrt(np.diag(J @ model.covariance_ @ J.T)), rtol=1e-6)


def test_weighted_effects_are_those_of_repeated_rows():
    c = np.random.default_rng(0).integers(1, 4, len(Y))
    model = BayesianSoftmaxRegression("flat").fit(X, Y, sample_weight=c)
    repeated = model.marginal_effects(np.repeat(X, c, axis=0))
    pd.testing.assert_frame_equal(model.marginal_effects(X, y=Y, sample_weight=c), repeated, rtol=1e-9)
    at_mean = model.marginal_effects(X, y=Y, sample_weight=c, at="mean")
    pd.testing.assert_frame_equal(at_mean, model.marginal_effects(np.repeat(X, c, axis=0), at="mean"), rtol=1e-9)


# Refusals

WRONG = {
    "unknown": ({"errors": "HC7"}, r"errors='HC7' is unknown: use one of \['posterior', 'HC0', 'HC1', 'cluster'\]"),
    "no rows": ({"errors": "HC0"}, r"errors='HC0' needs the rows of the fit again.*pass X= and y="),
    "no labels": ({"errors": "HC1", "X": X}, "errors='HC1' needs the rows of the fit again"),
    "no groups": ({"errors": "cluster", "X": X, "y": Y}, "errors='cluster' needs groups="),
    "groups without a part": ({"groups": GROUPS}, "groups= has no part in errors='posterior': use errors='cluster'"),
    "groups of robust errors": (
        {"errors": "HC0", "X": X, "y": Y, "groups": GROUPS},
        "groups= has no part in errors='HC0'",
    ),
    "other rows": (
        {"errors": "HC0", "X": X[:100], "y": Y[:100]},
        "These are not the rows of the fit: their log-likelihood is",
    ),
    "other labels": ({"errors": "HC0", "X": X, "y": np.roll(Y, 1)}, "These are not the rows of the fit"),
    "other weights": (
        {"errors": "cluster", "X": X, "y": Y, "groups": GROUPS, "sample_weight": np.full(len(Y), 2.0)},
        "These are not the rows of the fit",
    ),
    "too few groups": (
        {"errors": "cluster", "X": X, "y": Y, "groups": GROUPS[:9]},
        r"groups= has shape \(9,\): one group for each of the 240 rows",
    ),
    "one group": ({"errors": "cluster", "X": X, "y": Y, "groups": np.zeros(len(Y))}, "at least two groups"),
    "a missing group": (
        {"errors": "cluster", "X": X, "y": Y, "groups": [None, *GROUPS[1:]]},
        r"groups= is missing in row 0 \(counted from 0\)",
    ),
    "other columns": ({"errors": "HC0", "X": X[:, :2], "y": Y}, "X has 2 features, but"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refusals(flat, name):
    arguments, match = WRONG[name]
    with pytest.raises(ValueError, match=match):
        flat.summary("sum", **arguments)


def test_other_refusals(flat):
    with pytest.raises(ValueError, match=r"at='median' is unknown: use one of \['overall', 'mean'\]"):
        flat.marginal_effects(X, at="median")
    with pytest.raises(ValueError, match=r"method='exact' is unknown"):
        flat.marginal_effects(X, method="exact")
    with pytest.raises(ValueError, match=r"method='draws' has the errors of the posterior, not errors='HC0'"):
        flat.marginal_effects(X, method="draws", errors="HC0", y=Y)
    with pytest.raises(ValueError, match="sample_weight= needs y= too"):
        flat.marginal_effects(X, sample_weight=np.ones(len(X)))
    noisy = BayesianSoftmaxRegression(1.0, label_noise=0.1).fit(X, Y)
    with pytest.raises(ValueError, match="errors='HC0' does not know about label_noise"):
        noisy.summary(errors="HC0", X=X, y=Y)
    for rows in (X, da.from_array(X, chunks=(70, 3))):
        with pytest.raises(ValueError, match="groups='county' is not a column of X: pass its name, or a group for"):
            flat.summary(errors="cluster", X=rows, y=Y, groups="county")
    named = BayesianSoftmaxRegression("flat").fit(TABLE.assign(kind=Y), "kind")
    for put in (lambda table: table, *CONTAINERS.values()):
        with pytest.raises(ValueError, match="groups='county' is not a column of X"):
            named.summary(errors="cluster", X=put(TABLE.assign(kind=Y)), y="kind", groups="county")


def test_an_older_model_without_statistics_is_not_checked(flat):
    import copy

    old = copy.copy(flat)
    del old.statistics_
    ours = old.summary("sum", errors="HC0", X=X, y=Y)["sd"]
    np.testing.assert_array_equal(ours, flat.summary("sum", errors="HC0", X=X, y=Y)["sd"])
    assert "AIC" not in str(old)
