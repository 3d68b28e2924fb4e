"""The flat prior: maximum likelihood with its standard errors, as statsmodels and Stata have them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import statsmodels.api as sm
from scipy.special import softmax
from sklearn.datasets import load_iris

import posteriori as po
from posteriori import BayesianSoftmaxRegression, GaussianPrior
from posteriori.softmax.collinearity import dependent_columns
from posteriori.softmax.flat import FlatPrior

pytestmark = pytest.mark.filterwarnings("ignore:Maximum Likelihood optimization failed")  # of the peer, to 1e-14

ANES = sm.datasets.anes96.load_pandas()
VOTES, PARTY = ANES.exog, ANES.endog.astype(int)
NAMES = ["logpopul", "selfLR", "age", "educ", "income"]


def random_problem(seed, N=200, D=3, K=3, scale=1.0, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    y = (X @ rng.normal(size=(D, K)) + 0.3 * rng.normal(size=K) + rng.gumbel(size=(N, K))).argmax(axis=1)
    return X * scale + shift, y


def maximum_likelihood(X, y, **options):
    """statsmodels' answer, iterated to the end; the intercept is last."""
    Z = sm.add_constant(X, prepend=False)
    model = sm.Logit(y, Z) if len(np.unique(y)) == 2 else sm.MNLogit(y, Z)
    return model.fit(disp=0, tol=1e-14, maxiter=200, **options)


def figures(result, name):
    """A table of statsmodels by class, then by feature."""
    return np.asarray(getattr(result, name)).reshape(len(result.model.exog_names), -1).T.ravel()


@pytest.fixture(scope="module")
def votes():
    return BayesianSoftmaxRegression("flat").fit(VOTES, PARTY)


@pytest.fixture(scope="module")
def peer():
    return maximum_likelihood(VOTES, PARTY)


def assert_equals_peer(table, result, level=0.95):
    for ours, theirs in (("mean", "params"), ("sd", "bse"), ("z", "tvalues"), ("p", "pvalues")):
        np.testing.assert_allclose(table[ours], figures(result, theirs), rtol=1e-6, atol=1e-8, err_msg=ours)
    ends = np.asarray(result.conf_int(alpha=1 - level)).reshape(-1, 2)
    np.testing.assert_allclose(table[["lower", "upper"]], ends, rtol=1e-6, atol=1e-8)


# statsmodels


def test_tables_are_those_of_statsmodels(votes, peer):
    table = votes.summary("reference")
    assert list(table.columns[-3:]) == ["probability_of_sign", "z", "p"]
    assert table["feature"].tolist() == [*NAMES, "(intercept)"] * 6
    assert_equals_peer(table, peer)
    assert_equals_peer(votes.summary("reference", level=0.8), peer, 0.8)


def test_figures_of_the_whole_fit_are_those_of_statsmodels(votes, peer):
    statistics = votes.statistics_
    assert statistics.log_likelihood == pytest.approx(peer.llf, rel=1e-12)
    assert statistics.null_log_likelihood == pytest.approx(peer.llnull, rel=1e-8)
    assert statistics.pseudo_r2 == pytest.approx(peer.prsquared, rel=1e-7)
    assert statistics.aic == pytest.approx(peer.aic, rel=1e-12)
    assert statistics.bic == pytest.approx(peer.bic, rel=1e-12)
    assert statistics.likelihood_ratio == pytest.approx(peer.llr, rel=1e-7)
    assert statistics.likelihood_ratio_p == pytest.approx(peer.llr_pvalue, rel=1e-4)
    assert statistics.n_rows == 944
    assert "AIC 2995.85, BIC 3170.45" in str(votes)
    assert "flat: maximum likelihood" in str(votes)
    assert "none: the prior is improper" in str(votes)
    assert votes.log_evidence_ is None
    assert votes.prior_ is None


@pytest.mark.parametrize("at", ["overall", "mean"])
@pytest.mark.parametrize("errors", ["posterior", "HC0", "cluster"])
def test_marginal_effects_are_those_of_statsmodels(votes, at, errors):
    groups = np.arange(944) % 50 if errors == "cluster" else None
    robust = {"cov_type": errors} | ({} if groups is None else {"cov_kwds": {"groups": groups}})
    result = maximum_likelihood(VOTES, PARTY, **({} if errors == "posterior" else robust))
    theirs = result.get_margeff(at=at)
    ours = votes.marginal_effects(VOTES, at=at, errors=errors, y=PARTY, groups=groups)
    assert ours["class"].tolist() == np.repeat(np.arange(7), 5).tolist()
    np.testing.assert_allclose(ours["mean"], theirs.margeff.T.ravel(), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours["sd"], theirs.margeff_se.T.ravel(), rtol=1e-6)
    np.testing.assert_allclose(ours["p"], theirs.pvalues.T.ravel(), rtol=1e-5, atol=1e-12)


def test_probabilities_at_the_mode_are_those_of_statsmodels(peer):
    model = BayesianSoftmaxRegression("flat", predictive="plugin").fit(VOTES, PARTY)
    np.testing.assert_allclose(model.predict_proba(VOTES), peer.predict(), atol=1e-10)


PROBLEMS = {
    "two classes": random_problem(0, K=2),
    "two classes, one column": random_problem(1, D=1, K=2),
    "five classes": random_problem(2, N=600, D=2, K=5),
    "many columns": random_problem(3, N=500, D=12, K=3),
    "units": random_problem(4, N=300, scale=np.array([1e-3, 1.0, 1e4])),
    "far from the origin": random_problem(5, N=300, shift=np.array([50.0, -3.0, 7.0])),
    "a column of two values": (lambda X, y: (np.column_stack([X, X[:, 0] > 1.2]), y))(*random_problem(6, N=500)),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_random_problems_as_in_statsmodels(name):
    X, y = PROBLEMS[name]
    result = maximum_likelihood(X, y)
    model = BayesianSoftmaxRegression("flat").fit(X, y)
    assert_equals_peer(model.summary("reference"), result)
    assert model.statistics_.log_likelihood == pytest.approx(result.llf, rel=1e-10)
    effects, theirs = model.marginal_effects(X), result.get_margeff()
    if len(model.classes_) == 2:
        effects = effects[effects["class"] == 1]
    np.testing.assert_allclose(effects["mean"], theirs.margeff.T.ravel(), rtol=1e-6)
    np.testing.assert_allclose(effects["sd"], theirs.margeff_se.T.ravel(), rtol=1e-6)


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_a_rough_tolerance_costs_no_digits(votes, solver):
    rough = BayesianSoftmaxRegression("flat", solver=solver, tol=1e-4).fit(VOTES, PARTY)
    np.testing.assert_allclose(rough.coef_, votes.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(rough.summary("sum")["sd"], votes.summary("sum")["sd"], rtol=1e-8)


def test_a_few_iterations_may_be_enough(votes):
    near = BayesianSoftmaxRegression("flat", solver="newton", max_iter=3).fit(VOTES, PARTY)
    assert near.solution_.converged
    np.testing.assert_allclose(near.coef_, votes.coef_, rtol=1e-8, atol=1e-10)


# Stata's published figures for anes96 (mlogit, base outcome 0; margins, dydx(*))

STATA_PARAMS = """
-.01153598 .29771435 -.024945 .08249144 .00519655 -.37340167 -.08875065 .39166864 -.02289784 .18104276 .04787398
-2.2509132 -.1059667 .57345051 -.01485121 -.00715242 .05757516 -3.6655835 -.0915567 1.2787718 -.00868135 .19982796
.08449838 -7.6138431 -.0932846 1.3469616 -.01790407 .21693885 .08095841 -7.0604782 -.14088069 2.0700801 -.00943265
.3219257 .10889408 -12.105751
"""
STATA_ERRORS = """
.0342823657 .093626795 .0065248584 .0735865799 .0176336937 .6298376313 .0391615553 .1082386919 .0079144618 .0852893563
.0222809297 .7631899491 .0570382292 .1585481337 .0113313133 .1262913234 .0336142088 1.156541492 .0437902764 .1288965854
.0084187486 .0941250559 .0261963632 .9575809602 .0393516553 .1171860107 .0076110152 .0850070091 .0229760791 .8443638283
.042138047 .1434089089 .0081338625 .0910979921 .025300888 1.059954821
"""
STATA_EFFECTS = """
.00868085993550 -.09779854015456 .00272556969847 -.01992376579372 -.00603133322764 .00699386733148 -.05022430802614
-.00211003909752 -.00536980000265 -.00554366741814 -.00391040848820 -.02824717135857 -.00100551299310 .00664337806861
.00097987356999 -.00182580888015 -.00573744730031 -.00004249256428 -.00546669558488 .00054101121854 -.00098558129923
.01985550937033 .00047972250012 .00172605778905 .00211291403209 -.00153469551647 .03755346502013 -.00068531143399
.00472471794347 .00254733486106 -.00741820702809 .12459834487569 .00063806819375 .01766610701188 .00539385283759
"""
STATA_EFFECT_ERRORS = """
.0038581061 .0080471125 .0007068488 .0082318967 .0020261706 .003904378 .0073600286 .000756431 .0084381578 .0020482238
.003137126 .0056813182 .0006601377 .0068932588 .0018481806 .0019427783 .0031904763 .0003865411 .004361789 .0011523221
.0029863227 .0054076092 .0005886612 .0064426365 .0018886818 .0035806552 .0069497362 .000722511 .0078287717 .0022352393
.0033641608 .008376629 .0006774697 .0073505286 .0021660086
"""


def numbers(text):
    return np.array(text.split(), dtype=float)


def test_stata(votes):
    """To the digits that are right: coefficients in single precision; effects of a feature sum to 1.6e-7, not to 0."""
    by_feature = numbers(STATA_EFFECTS).reshape(7, 5).sum(axis=0)
    assert 1e-7 < np.abs(by_feature).max() < 2e-7
    table, effects = votes.summary("reference"), votes.marginal_effects(VOTES)
    np.testing.assert_allclose(table["mean"], numbers(STATA_PARAMS), rtol=2e-6)
    np.testing.assert_allclose(table["sd"], numbers(STATA_ERRORS), rtol=1e-6)
    np.testing.assert_allclose(effects["mean"], numbers(STATA_EFFECTS), atol=2e-7)
    np.testing.assert_allclose(effects["sd"], numbers(STATA_EFFECT_ERRORS), rtol=1e-6)
    assert votes.statistics_.log_likelihood == pytest.approx(-1461.922747312, abs=1e-6)
    assert votes.statistics_.null_log_likelihood == pytest.approx(-1750.34670999, abs=1e-6)
    assert votes.statistics_.pseudo_r2 == pytest.approx(0.1647810465387, abs=1e-9)
    assert votes.statistics_.likelihood_ratio == pytest.approx(576.8479253554, abs=1e-5)
    assert votes.statistics_.aic == pytest.approx(2995.84549462, abs=1e-6)
    assert votes.statistics_.bic == pytest.approx(3170.45003661, abs=1e-6)


# Weak priors come to the flat one

WEAK = [1e-8, 1e-12, 1e-14, 1e-16, 1e-40, 1e-160, 1e-300]


@pytest.mark.parametrize("has_intercept", [True, False])
@pytest.mark.parametrize("K", [2, 4])
def test_contrasts_of_weak_priors_are_those_of_the_flat_one(K, has_intercept):
    X, y = random_problem(7, N=3000, K=K)
    flat = BayesianSoftmaxRegression("flat", fit_intercept=has_intercept).fit(X, y)
    for alpha in WEAK:
        prior = GaussianPrior(precision=alpha, intercept_precision=alpha)
        options = {"approximation": "laplace", "fit_intercept": has_intercept, "tol": 1e-12}
        weak = BayesianSoftmaxRegression(prior, **options).fit(X, y)
        for coding in ("reference", "sum"):
            ours, theirs = weak.summary(coding), flat.summary(coding)
            np.testing.assert_allclose(ours["sd"], theirs["sd"], rtol=1e-9)
            np.testing.assert_allclose(ours["mean"], theirs["mean"], atol=1e-6 * theirs["sd"].min())
        np.testing.assert_allclose(weak.contrast(1, 0)["sd"], flat.contrast(1, 0)["sd"], rtol=1e-9)
        np.testing.assert_allclose(weak.predict_proba(X[:9]), flat.predict_proba(X[:9]), rtol=1e-6)
        np.testing.assert_allclose(weak.uncertainty(X[:9]).epistemic, flat.uncertainty(X[:9]).epistemic, atol=1e-9)


def test_what_is_not_determined_by_data_is_as_a_weak_prior_says():
    """Columns far from their mean, whose intercepts' prior is about the mean row: nothing is lost beside it."""
    for alpha in WEAK:
        model = BayesianSoftmaxRegression(alpha, approximation="laplace").fit(VOTES, PARTY)
        table = model.summary()
        weights = table["feature"] != "(intercept)"
        np.testing.assert_allclose(table["sd"][weights] * np.sqrt(7 * alpha), 1.0, rtol=1e-6)
        rows = model.predict_latent(VOTES[:2])[1]
        expected = ((VOTES[:2] - VOTES.mean()) ** 2).sum(axis=1) / (7 * alpha)
        np.testing.assert_allclose(rows[:, 0, 0], expected, rtol=1e-6)


def test_the_evidence_of_weak_priors_follows_their_volume():
    """Each weight of each contrast costs half the logarithm of its precision."""
    models = [BayesianSoftmaxRegression(alpha, approximation="laplace").fit(VOTES, PARTY) for alpha in WEAK]
    cost = [model.log_evidence_ - 0.5 * 6 * 5 * np.log(alpha) for model, alpha in zip(models, WEAK, strict=True)]
    np.testing.assert_allclose(cost, cost[-1], rtol=1e-7)


@pytest.mark.parametrize("approximation", ["laplace", "variational"])
@pytest.mark.parametrize("kind", ["by class", "matrix", "Kronecker"])
def test_weak_priors_that_do_not_treat_classes_equally(kind, approximation):
    """Errors of contrasts come to a limit; so do predictions, and nothing is singular."""
    X, y = random_problem(21, N=400)
    flat = BayesianSoftmaxRegression("flat").fit(X, y)
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 14))
    make = {
        "by class": lambda alpha: GaussianPrior(precision=alpha * np.arange(1.0, 10.0).reshape(3, 3)),
        "matrix": lambda alpha: GaussianPrior(mean=np.ones((3, 4)), precision=alpha * root @ root.T),
        "Kronecker": lambda alpha: GaussianPrior(precision=(alpha * root[:3] @ root[:3].T, np.eye(4))),
    }[kind]
    options = {"approximation": approximation, "tol": 1e-13}
    weak = WEAK[1:6] if approximation == "laplace" else WEAK[1:5]  # variational steps may not end at 1e-160, and say so
    models = [BayesianSoftmaxRegression(make(alpha), **options).fit(X, y) for alpha in weak]
    tables = np.array([model.summary("reference")[["mean", "sd"]] for model in models])
    np.testing.assert_allclose(tables, np.broadcast_to(tables[0], tables.shape), rtol=1e-8)
    if approximation == "laplace" and kind != "by class":  # there intercepts keep their prior
        np.testing.assert_allclose(tables[-1], flat.summary("reference")[["mean", "sd"]], rtol=1e-8)
    P = np.array([model.predict_proba(X[:9]) for model in models])
    np.testing.assert_allclose(P, np.broadcast_to(P[0], P.shape), rtol=1e-8)


@pytest.mark.parametrize("has_intercept", [True, False])
@pytest.mark.parametrize("structure", ["full", "kronecker", "diagonal"])
def test_standard_deviations_do_not_drift_as_a_prior_weakens(structure, has_intercept):
    """Nor do predictions; intercepts keep their prior, which is about a row far from the origin."""
    X, y = random_problem(8, N=3000, K=4, shift=3.0)
    options = {"approximation": "laplace", "posterior": structure, "fit_intercept": has_intercept, "tol": 1e-12}
    models = [BayesianSoftmaxRegression(alpha, **options).fit(X, y) for alpha in WEAK]
    tables = np.array([model.summary("reference")["sd"] for model in models])
    np.testing.assert_allclose(tables, np.broadcast_to(tables[0], tables.shape), rtol=1e-9)
    P = np.array([model.predict_proba(X[:5]) for model in models])
    np.testing.assert_allclose(P, np.broadcast_to(P[0], P.shape), rtol=1e-6)
    for model in models:
        np.testing.assert_allclose(model.sample_proba(X[:5], 2000, 0).mean(axis=0), P[0], atol=5e-3)


def test_a_precision_of_zero_is_the_limit_of_small_ones():
    """Weights are free; the logit of the mean row keeps its weak prior, as with every number."""
    X, y = random_problem(9, shift=2.0)
    zero = BayesianSoftmaxRegression(0).fit(X, y)
    small = BayesianSoftmaxRegression(1e-100, approximation="laplace").fit(X, y)
    for column in ("mean", "sd"):
        np.testing.assert_allclose(zero.summary("sum")[column], small.summary("sum")[column], rtol=1e-8, atol=1e-9)
    assert zero.log_evidence_ is None
    again = BayesianSoftmaxRegression(FlatPrior(1 / 2.5**2)).fit(X, y)
    np.testing.assert_allclose(again.coef_, zero.coef_, atol=1e-12)
    assert zero.summary("sum")["sd"].iloc[3] < BayesianSoftmaxRegression("flat").fit(X, y).summary("sum")["sd"].iloc[3]


# Everything else that a posterior is asked


def test_the_posterior_is_the_inverse_information_of_contrasts():
    X, y = random_problem(10)
    model = BayesianSoftmaxRegression("flat").fit(X, y)
    Z = np.column_stack([X, np.ones(len(X))])
    P = softmax(Z @ np.column_stack([model.coef_, model.intercept_]).T, axis=1)
    H = sum(np.kron(np.diag(p) - np.outer(p, p), np.outer(z, z)) for p, z in zip(P, Z, strict=True))
    np.testing.assert_allclose(model.covariance_, np.linalg.pinv(H, rcond=1e-10), atol=1e-9)
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-12)
    mean, covariance = model.predict_latent(X[:4])
    np.testing.assert_allclose(mean, Z[:4] @ np.column_stack([model.coef_, model.intercept_]).T, atol=1e-10)
    rows = [np.kron(np.eye(3), z) for z in Z[:4]]
    np.testing.assert_allclose(covariance, [J @ model.covariance_ @ J.T for J in rows], atol=1e-10)


def test_predictions_are_averages_over_it():
    X, y = random_problem(11)
    model = BayesianSoftmaxRegression("flat", n_nodes=2048).fit(X, y)
    drawn = model.sample_proba(X[:5], 40_000, 0)
    np.testing.assert_allclose(model.predict_proba(X[:5]), drawn.mean(axis=0), atol=2e-3)
    lower, upper = model.predict_interval(X[:5], 0.8)
    np.testing.assert_allclose(lower, np.quantile(drawn, 0.1, axis=0), atol=5e-3)
    np.testing.assert_allclose(upper, np.quantile(drawn, 0.9, axis=0), atol=5e-3)
    found = model.uncertainty(X[:5])
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic, atol=1e-12)


def test_weights_are_frequencies_and_counts_are_rows():
    X, y = random_problem(12, N=120)
    times = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = BayesianSoftmaxRegression("flat").fit(X, y, sample_weight=times)
    repeated = BayesianSoftmaxRegression("flat").fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    counted = BayesianSoftmaxRegression("flat").fit(X, np.eye(3)[y] * times[:, None])
    for other in (weighted, counted):
        for column in ("mean", "sd", "p"):
            np.testing.assert_allclose(other.summary("sum")[column], repeated.summary("sum")[column], rtol=1e-9)
        assert other.statistics_.log_likelihood == pytest.approx(repeated.statistics_.log_likelihood, rel=1e-12)
        assert other.statistics_.bic == pytest.approx(repeated.statistics_.bic, rel=1e-12)


def test_soft_labels_are_fractions_of_rows():
    X, _ = random_problem(13, N=60)
    Y = np.random.default_rng(1).dirichlet(np.ones(3), len(X))
    soft = BayesianSoftmaxRegression("flat").fit(X, Y)
    hard = BayesianSoftmaxRegression("flat").fit(np.repeat(X, 3, axis=0), np.tile(np.arange(3), 60), Y.ravel())
    np.testing.assert_allclose(soft.summary("sum")[["mean", "sd"]], hard.summary("sum")[["mean", "sd"]], rtol=1e-8)


def test_it_may_be_the_prior_of_more_rows():
    """Rows in two parts are all rows, to the error of a Gaussian; the same information is doubled exactly."""
    X, y = random_problem(14, N=2000)
    first = BayesianSoftmaxRegression("flat").fit(X[:1000], y[:1000])
    both = BayesianSoftmaxRegression(first.as_prior(), approximation="laplace").fit(X[1000:], y[1000:])
    whole = BayesianSoftmaxRegression("flat").fit(X, y)
    ours, theirs = both.summary("reference"), whole.summary("reference")
    assert (np.abs(ours["mean"] - theirs["mean"]) < 0.1 * theirs["sd"]).all()
    np.testing.assert_allclose(ours["sd"], theirs["sd"], rtol=0.02)
    twice = BayesianSoftmaxRegression(first.as_prior(), approximation="laplace").fit(X[:1000], y[:1000])
    once = first.summary("reference")
    np.testing.assert_allclose(twice.summary("reference")["mean"], once["mean"], atol=1e-7)
    np.testing.assert_allclose(twice.summary("reference")["sd"] * np.sqrt(2), once["sd"], rtol=1e-6)


@pytest.mark.parametrize("prior", ["flat", 0, FlatPrior(0.5)], ids=str)
def test_it_is_stored(prior, tmp_path):
    X, y = random_problem(15)
    model = BayesianSoftmaxRegression(prior).fit(X, y)
    po.save(model, tmp_path / "model")
    other = po.load(tmp_path / "model")
    assert other.prior == model.prior
    assert other.summary("sum").equals(model.summary("sum"))
    assert other.statistics_.bic == model.statistics_.bic
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))


def test_sparse_rows():
    X, y = random_problem(16, N=400)
    X = X * (np.random.default_rng(2).uniform(size=X.shape) < 0.4)
    dense = BayesianSoftmaxRegression("flat").fit(X, y)
    sparse = BayesianSoftmaxRegression("flat").fit(sp.csr_array(X), y)
    for table in ("summary", "effects"):
        ours, theirs = (
            model.summary("reference") if table == "summary" else model.marginal_effects(rows)
            for model, rows in ((sparse, sp.csr_array(X)), (dense, X))
        )
        np.testing.assert_allclose(ours[["mean", "sd"]], theirs[["mean", "sd"]], rtol=1e-7, atol=1e-9)


def test_another_class_prior_moves_the_intercepts_alone(votes):
    other = votes.with_class_prior(np.full(7, 1 / 7))
    before, after = votes.summary("reference"), other.summary("reference")
    np.testing.assert_allclose(before["sd"], after["sd"])
    weights = before["feature"] != "(intercept)"
    np.testing.assert_allclose(before["mean"][weights], after["mean"][weights])


def test_laplace_is_the_only_approximation():
    X, y = random_problem(17)
    assert BayesianSoftmaxRegression("flat").fit(X, y).solution_.approximation == "laplace"
    with pytest.raises(ValueError, match="approximation='variational' needs a proper prior"):
        BayesianSoftmaxRegression("flat", approximation="variational").fit(X, y)
    with pytest.raises(ValueError, match="An improper prior needs a full posterior"):
        BayesianSoftmaxRegression("flat", posterior="diagonal").fit(X, y)
    with pytest.raises(ValueError, match="intercept_precision=-1 must be a number that is not negative"):
        BayesianSoftmaxRegression(FlatPrior(-1)).fit(X, y)


# No maximum, or too many

APART = np.r_[np.linspace(-3, -1, 8), np.linspace(1, 3, 8)][:, None]


SEPARATED = "separated.*no standard errors.*infinite.*'jeffreys'"


def test_separated_classes_have_no_standard_errors():
    rows, y = pd.DataFrame(APART, columns=["length"]), [0] * 8 + [1] * 8
    with pytest.warns(po.SeparationWarning, match=SEPARATED):
        model = BayesianSoftmaxRegression("flat").fit(rows, y)
    for errors in ({}, {"errors": "HC0", "X": rows, "y": y}):
        table = model.summary("reference", **errors)
        assert np.isinf(table["sd"]).all()
        assert (table["lower"] == -np.inf).all()
        assert (table["upper"] == np.inf).all()
        assert (table["p"] == 1.0).all()
        assert (table["probability_of_sign"] == 0.5).all()
    assert np.isinf(model.marginal_effects(rows)["sd"]).all()
    P = model.predict_proba(rows)
    assert np.isfinite(P).all()
    assert (P[:8, 0] > 0.5).all()
    with pytest.raises(ValueError, match=r"as_prior\(\) needs a posterior.*separated"):
        model.as_prior()


def test_what_is_finite_under_quasi_separation_has_its_errors():
    """Two rows at zero, one of each class, know the intercept: its information is 2 / 4."""
    X, y = np.r_[APART, [[0.0], [0.0]]], [0] * 8 + [1] * 8 + [0, 1]
    with pytest.warns(po.SeparationWarning, match=SEPARATED):
        table = BayesianSoftmaxRegression("flat").fit(X, y).contrast(1, 0)
    assert np.isinf(table["sd"][0])
    assert table["sd"][1] == pytest.approx(np.sqrt(2.0), rel=1e-6)
    assert table["mean"][1] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("K", [2, 3])
def test_a_column_that_occurs_with_one_class_alone_leaves_the_others_as_they_are(K, tmp_path):
    """Its own coefficient grows for ever; all others are those of the rows without it."""
    X, y = random_problem(23, N=400, K=K, scale=np.array([1.0, 30.0, 0.2]))
    rare = np.random.default_rng(0).uniform(size=400) < 0.05
    y = np.where(rare, 1, y)
    with pytest.warns(po.SeparationWarning, match=SEPARATED):
        model = BayesianSoftmaxRegression("flat").fit(np.column_stack([X, rare]), y)
    table = model.contrast(1, 0)
    expected = BayesianSoftmaxRegression("flat").fit(X[~rare], y[~rare]).contrast(1, 0)
    assert np.isinf(table["sd"]).tolist() == [False, False, False, True, False]
    for column in ("mean", "sd", "lower", "upper", "z"):
        np.testing.assert_allclose(table[column].drop(3), expected[column], rtol=1e-6, atol=1e-8)
    po.save(model, tmp_path / "model")
    assert po.load(tmp_path / "model").contrast(1, 0).equals(table)


def test_two_classes_beside_a_third_that_is_separated():
    """Setosa is told apart without error; versicolor and virginica are not, and have the figures of every textbook."""
    X, y = load_iris(return_X_y=True)
    with pytest.warns(po.SeparationWarning, match="Classes 0 and "):
        model = BayesianSoftmaxRegression("flat").fit(X, y)
    table = model.contrast(2, 1)
    np.testing.assert_allclose(table["mean"], [-2.465, -6.681, 9.429, 18.286, -42.638], atol=5e-4)
    np.testing.assert_allclose(table["sd"], [2.394, 4.480, 4.737, 9.743, 25.708], atol=5e-4)
    assert np.isinf(model.contrast(1, 0)["sd"]).all()
    assert np.isinf(model.summary("sum")["sd"]).all()


def test_a_class_without_rows_is_separated():
    X, y = random_problem(18, K=2)
    with pytest.warns(po.SeparationWarning):
        model = BayesianSoftmaxRegression("flat", classes=[0, 1, 2]).fit(X, y)
    assert np.isinf(model.contrast(2, 1)["sd"]).all()
    assert np.isfinite(model.predict_proba(X)).all()
    expected = BayesianSoftmaxRegression("flat").fit(X, y).contrast(1, 0)
    np.testing.assert_allclose(model.contrast(1, 0)[["mean", "sd"]], expected[["mean", "sd"]], rtol=1e-6)


@pytest.mark.parametrize("prior", ["flat", "jeffreys"])
def test_collinear_columns_are_named(prior):
    X, y = random_problem(19)
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
        sum=lambda t: 2 * t.a - t.c + 3, one=7.0, b2=lambda t: 10 * t.b
    )
    expected = "'sum' is a combination of 'a', 'c'; 'one' is constant; 'b2' is a combination of 'b'"
    with pytest.raises(
        ValueError, match=f"prior='{prior}' needs columns that are not collinear.*{expected}.*'evidence'"
    ):
        BayesianSoftmaxRegression(prior).fit(table, y)
    with pytest.raises(ValueError, match="'x3' is a combination of 'x0', 'x2'"):
        BayesianSoftmaxRegression(prior).fit(table.drop(columns=["one", "b2"]).to_numpy(), y)
    without = table.drop(columns=["sum", "b2"])  # a constant column is an intercept, where there is no other
    model = BayesianSoftmaxRegression(prior, fit_intercept=False).fit(without, y)
    usual = BayesianSoftmaxRegression(prior).fit(without.drop(columns="one"), y)
    np.testing.assert_allclose(model.coef_[:, :3], usual.coef_, rtol=1e-4, atol=1e-6)


def test_fewer_rows_than_coefficients():
    X, y = random_problem(20, N=6, D=8)
    with pytest.raises(ValueError, match=r"at least as many rows.*6 rows for 9"):
        BayesianSoftmaxRegression("flat").fit(X, y)


def test_dependent_columns_of_an_ill_conditioned_but_regular_matrix():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1.0, 1e6, 1e-6]
    near = np.column_stack([X, X[:, 0] + 1e-4 * rng.normal(size=200)])
    assert dependent_columns(near.T @ near) == []
    exact = np.column_stack([X, X[:, 0] + 1e-6 * X[:, 1]])
    (found,) = dependent_columns(exact.T @ exact)
    assert (found.column, found.others) == (3, (0, 1))
