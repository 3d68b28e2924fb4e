"""Priors chosen by evidence, carried over from yesterday, or flat."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine

from posteriori import BayesianSoftmaxRegression, ConvergenceWarning, GaussianPrior, SoftmaxRegression, Status

DATA = {"iris": load_iris(return_X_y=True), "wine": load_wine(return_X_y=True)}


def simulated(N, D=4, K=3, seed=0, signal=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    return X, (signal * X @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)


DATA["overlapping"] = simulated(200)
X, Y = DATA["overlapping"]


def laplace(prior="evidence", **options):
    return BayesianSoftmaxRegression(prior, approximation="laplace", **options)


# Evidence


@pytest.mark.parametrize(("X", "y"), DATA.values(), ids=DATA.keys())
def test_no_fixed_precision_has_more_evidence(X, y):
    model = laplace().fit(X, y)
    grid = np.geomspace(1e-4, 1e4, 41)
    evidences = [laplace(GaussianPrior(precision=a, autoscale=True)).fit(X, y).log_evidence_ for a in grid]
    assert model.log_evidence_ >= max(evidences) - 1.0  # it gives way to the prior of the strength
    assert model.solution_.evidence_converged
    highest = max(model.solution_.evidence_path, key=lambda point: point.height)
    assert model.log_evidence_ == pytest.approx(highest.log_evidence, abs=1e-3)
    centre = np.log(0.5 * X.shape[1])
    assert highest.log_prior == pytest.approx(-0.5 * ((highest.u[0] - centre) / 1.5) ** 2)
    chosen = model.prior_.precision[0] / X.var(axis=0)  # one number for standardised columns
    np.testing.assert_allclose(chosen, chosen[0], rtol=1e-9)


@pytest.mark.parametrize("prior", ["evidence", "ard"])
@pytest.mark.parametrize(("X", "y"), DATA.values(), ids=DATA.keys())
def test_the_chosen_prior_passed_back_reproduces_the_fit(X, y, prior):
    """But for averages over the strength of the prior, which predictions by the mode do without."""
    model = BayesianSoftmaxRegression(prior, predictive="plugin").fit(X, y)
    options = {"approximation": model.solution_.approximation, "predictive": "plugin"}
    again = BayesianSoftmaxRegression(model.prior_, **options).fit(X, y)
    scale = X.std(axis=0)
    np.testing.assert_allclose(again.coef_ * scale, model.coef_ * scale, atol=5e-4)
    assert again.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-3)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_chosen_prior_follows_the_units(unit):
    """Weights of columns in small units are large, and their precisions small, but no less different."""
    units = unit ** np.array([1.0, 0.8, 0.5, 1.0])
    model, other = laplace().fit(X, Y), laplace().fit(X * units, Y)
    assert np.shape(other.prior_.precision) == (3, 4)
    np.testing.assert_allclose(other.prior_.precision, model.prior_.precision * units**2, rtol=1e-6)
    assert laplace(other.prior_).fit(X * units, Y).log_evidence_ == pytest.approx(other.log_evidence_, abs=1e-3)


@pytest.mark.parametrize(("X", "y"), DATA.values(), ids=DATA.keys())
def test_a_precision_per_feature_has_no_less_evidence_than_one(X, y):
    one, each = laplace("evidence").fit(X, y), laplace("ard").fit(X, y)
    assert each.log_evidence_ >= one.log_evidence_ - 2e-3
    assert (each.prior_.precision == each.prior_.precision[0]).all()


def test_irrelevant_features_are_switched_off():
    X, y = simulated(500, D=3)
    noise = np.random.default_rng(9).normal(size=(500, 2)) * 40
    model = laplace("ard").fit(np.column_stack([X, noise]), y)
    standardised = model.prior_.precision[0] / np.append(X.std(axis=0), noise.std(axis=0)) ** 2
    assert standardised[3:].min() > 30 * standardised[:3].max()
    shares = np.abs(model.coef_ * np.append(X.std(axis=0), noise.std(axis=0))).max(axis=0)
    assert shares[3:].max() < 0.05 * shares[:3].min()


@pytest.mark.parametrize("prior", ["evidence", "ard"])
def test_labels_that_have_nothing_to_do_with_the_features(prior):
    """The best prior leaves nothing of the weights, and nothing is warned of."""
    y = np.random.default_rng(3).integers(0, 3, len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BayesianSoftmaxRegression(prior).fit(X, y)
    assert np.abs(model.coef_).max() < 0.1
    np.testing.assert_allclose(model.predict_proba(X).mean(axis=0), np.bincount(y) / len(y), atol=0.01)


def test_more_evidence_for_the_columns_that_matter():
    X, y = simulated(300)
    shuffled = np.random.default_rng(0).permuted(X, axis=0)
    assert laplace().fit(X, y).log_evidence_ > laplace().fit(shuffled, y).log_evidence_ + 20


def test_precision_of_the_data_s_own_weights_is_found():
    """Weights drawn with precision 4: the evidence of many says so, within its own error of 1 / sqrt(K D / 2)."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(4000, 40))
    y = (X @ rng.normal(scale=0.5, size=(40, 4)) + rng.gumbel(size=(4000, 4))).argmax(axis=1)
    model = laplace().fit(X, y)
    assert np.median(model.prior_.precision) == pytest.approx(4.0, rel=0.4)


@pytest.mark.parametrize("structure", ["kronecker", "diagonal"])
@pytest.mark.parametrize("prior", ["evidence", "ard"])
def test_evidence_of_a_structured_posterior(structure, prior):
    """Ratios of precisions by MacKay's fixed point, their strength by folds: near those of a full posterior."""
    X, y = simulated(600)
    full = laplace("evidence").fit(X, y)
    model = BayesianSoftmaxRegression(prior, posterior=structure).fit(X, y)
    assert model.solution_.structure == structure
    assert model.solution_.evidence_converged == (None if prior == "evidence" else True)
    assert model.solution_.strength_reason == "folds of the rows are predicted best"
    tried = {point.factor: point.loss for point in model.solution_.strength_path}
    assert len(tried) >= 3
    assert all(point.log_evidence is None for point in model.solution_.strength_path)
    np.testing.assert_allclose(model.predict_proba(X), full.predict_proba(X), atol=0.05)
    if prior == "evidence":
        assert np.median(model.prior_.precision) == pytest.approx(np.median(full.prior_.precision), rel=1.0)


@pytest.mark.parametrize("structure", ["kronecker", "diagonal"])
def test_the_search_of_a_structured_posterior_ends_where_features_have_no_effect(structure):
    """Their precisions have no end: it is reached when what is left is not worth another fit."""
    X, y = simulated(600)
    noise = np.random.default_rng(9).normal(size=(600, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BayesianSoftmaxRegression("ard", posterior=structure).fit(np.column_stack([X, noise]), y)
    assert model.solution_.evidence_converged
    assert np.median(model.prior_.precision[0, -8:]) > 30 * np.median(model.prior_.precision[0, :-8] / X.var(axis=0))


# Flat priors


def separated():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    centres = 6 * np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    return centres[y] + rng.normal(scale=0.3, size=(60, 2)), y


def test_jeffreys_is_finite_where_classes_are_separated():
    X, y = separated()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BayesianSoftmaxRegression("jeffreys").fit(X, y)
    assert model.solution_.status is Status.CONVERGED
    assert np.isfinite(model.coef_).all()
    assert 0.1 < np.abs(model.coef_).max() < 10
    assert model.score(X, y) == 1.0
    assert model.prior_ is None
    assert model.log_evidence_ is None
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-9)
    assert np.isfinite(model.covariance_).all()
    assert np.isfinite(model.predict_proba(X)).all()


def test_jeffreys_of_a_two_by_two_table_adds_half_a_row_to_each_cell():
    """For a saturated model Firth's correction is known in closed form."""
    x = np.repeat([0.0, 0.0, 1.0, 1.0], [7, 3, 0, 12])[:, None]
    y = np.repeat([0, 1, 0, 1], [7, 3, 0, 12])
    model = BayesianSoftmaxRegression("jeffreys", predictive="plugin", tol=1e-14).fit(x, y)
    odds = np.array([3.5 / 7.5, 12.5 / 0.5])
    np.testing.assert_allclose(model.decision_function([[0.0], [1.0]]), np.log(odds), atol=1e-6)


def test_jeffreys_matters_less_with_more_rows():
    gaps = []
    for N in (100, 1000, 10_000):
        X, y = simulated(N)
        firth = BayesianSoftmaxRegression("jeffreys").fit(X, y).coef_
        gaps.append(np.abs(firth - SoftmaxRegression(0.0).fit(X, y).coef_).max() / np.abs(firth).max())
    assert gaps[0] > 5 * gaps[1] > 25 * gaps[2]


def test_jeffreys_in_other_units():
    scale, shift = np.array([1e3, 1e-3, 5.0, 1.0]), np.array([10.0, 0.0, -1e3, 3.0])
    model, other = (BayesianSoftmaxRegression("jeffreys").fit(Z, Y) for Z in (X, X * scale + shift))
    np.testing.assert_allclose(other.coef_ * scale, model.coef_, atol=1e-6)
    np.testing.assert_allclose(other.predict_proba(X * scale + shift), model.predict_proba(X), atol=1e-8)


def test_jeffreys_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match=r"jeffreys.*collinear.*prior='evidence'"):
        BayesianSoftmaxRegression("jeffreys").fit(np.column_stack([X, X[:, 0]]), Y)
    for approximation in ("variational", "importance"):
        with pytest.raises(ValueError, match=f"approximation='{approximation}' needs a proper prior"):
            BayesianSoftmaxRegression("jeffreys", approximation=approximation).fit(X, Y)
    with pytest.raises(ValueError, match="An improper prior needs a full posterior"):
        BayesianSoftmaxRegression("jeffreys", posterior="diagonal").fit(X, Y)


# Means and strong priors


def test_a_strong_prior_pulls_to_its_mean():
    mean = np.arange(12.0).reshape(3, 4) / 6 - 1
    gaps = [np.abs(laplace(GaussianPrior(mean, a)).fit(X, Y).coef_ - mean).max() for a in (1e-2, 1e2, 1e4, 1e7)]
    assert gaps[0] > 0.3
    assert (np.diff(gaps) < 0).all()
    assert gaps[-1] < 1e-4


def test_a_mean_with_intercepts_reaches_the_intercepts():
    mean = np.column_stack([np.zeros((3, 4)), [2.0, 0.0, -2.0]])
    model = laplace(GaussianPrior(mean, precision=1e6, intercept_precision=1e6)).fit(X, Y)
    np.testing.assert_allclose(model.intercept_, [2.0, 0.0, -2.0], atol=1e-3)
    np.testing.assert_allclose(model.coef_, 0.0, atol=1e-3)


def test_number_priors_are_in_the_units_of_the_data():
    """Columns a thousand times larger need weights a thousand times smaller, which the same prior hardly minds."""
    model, metres = laplace(1.0).fit(X, Y), laplace(1.0).fit(X * 1e3, Y)
    assert np.abs(metres.coef_ * 1e3).max() > 1.02 * np.abs(model.coef_).max()
    same = laplace(1e6).fit(X * 1e3, Y)
    np.testing.assert_allclose(same.coef_ * 1e3, model.coef_, atol=1e-6)


# Yesterday's posterior


def test_yesterday_s_posterior_as_prior_is_one_fit_on_all_rows():
    """To Laplace's order: the error falls faster than the posterior's own width."""
    errors = []
    for N in (100, 400, 1600):
        X, y = simulated(N, seed=4)
        half = N // 2
        prior = GaussianPrior(mean=np.zeros((3, 5)), precision=np.eye(15))
        once = laplace(prior).fit(X, y)
        yesterday = laplace(prior).fit(X[:half], y[:half])
        today = laplace(yesterday.as_prior()).fit(X[half:], y[half:])
        sd = np.sqrt(once.covariance_.diagonal()).reshape(3, 5)[:, :4]
        errors.append(np.abs((today.coef_ - once.coef_) / sd).max())
        np.testing.assert_allclose(today.predict_proba(X), once.predict_proba(X), atol=2.0 / np.sqrt(N))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.15


def test_as_prior_is_the_posterior():
    for Z in (X, X * [1, 10, 100, 0.1] + [0, 5, -3, 1]):
        model = BayesianSoftmaxRegression(1.0).fit(Z, Y)
        prior = model.as_prior()
        assert isinstance(prior, GaussianPrior)
        np.testing.assert_allclose(prior.precision @ model.covariance_, np.eye(15), atol=1e-6)
        np.testing.assert_allclose(prior.mean, np.column_stack([model.coef_, model.intercept_]), atol=2e-2)
        mean, _ = model.predict_latent(Z)
        np.testing.assert_allclose(Z @ prior.mean[:, :4].T + prior.mean[:, 4], mean, atol=1e-9)


def test_as_prior_with_rows_of_no_consequence_changes_nothing():
    model = laplace(1.0).fit(X, Y)
    again = laplace(model.as_prior()).fit(X[:3], [0, 1, 2], np.full(3, 1e-9))
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-6)
    np.testing.assert_allclose(again.covariance_, model.covariance_, rtol=1e-5, atol=1e-8)


def test_as_prior_without_an_intercept():
    model = laplace(1.0, fit_intercept=False).fit(X, Y)
    again = laplace(model.as_prior(), fit_intercept=False).fit(X[:3], [0, 1, 2], np.full(3, 1e-9))
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-6)


def test_as_prior_of_another_class_prior_goes_with_its_intercepts():
    model = laplace(1.0).fit(X, Y).with_class_prior([0.8, 0.1, 0.1])
    np.testing.assert_allclose(model.as_prior().mean[:, 4], model.intercept_, atol=1e-6)


def test_as_prior_of_jeffreys_has_the_covariances_of_contrasts():
    """Nothing is known of a vector added to all classes, and nothing depends on it: any precision will do there."""
    model = BayesianSoftmaxRegression("jeffreys").fit(X, Y)
    prior = model.as_prior()
    C = np.kron(np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]), np.eye(5))
    np.testing.assert_allclose(C @ np.linalg.inv(prior.precision) @ C.T, C @ model.covariance_ @ C.T, rtol=1e-6)
    np.testing.assert_allclose(C @ prior.mean.ravel(), C @ np.column_stack([model.coef_, model.intercept_]).ravel())


def test_as_prior_of_fewer_draws_than_parameters_is_refused_in_clear_words():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianSoftmaxRegression(1.0, approximation="importance", n_draws=8).fit(X, Y)
    with pytest.raises(ValueError, match=r"draws"):
        model.as_prior()


# As an argument


def test_priors_are_parameters():
    model = BayesianSoftmaxRegression(GaussianPrior(precision=2.0))
    assert model.get_params()["prior__precision"] == 2.0
    model.set_params(prior__precision=5.0, prior__autoscale=True)
    assert model.prior == GaussianPrior(precision=5.0, autoscale=True)
    with pytest.raises(ValueError, match="no parameter 'width'"):
        model.prior.set_params(width=1)


WRONG = {
    "zero": (GaussianPrior(precision=0.0), "precision is 0.0: it must be positive.*jeffreys"),
    "negative": (GaussianPrior(precision=-1.0), "must be positive"),
    "NaN": (GaussianPrior(precision=np.nan), "precision must be finite"),
    "infinite": (GaussianPrior(precision=np.inf), "precision must be finite"),
    "string": (GaussianPrior(precision="weak"), "precision is 'weak': numbers are needed"),
    "shape": (GaussianPrior(precision=np.ones(4)), r"shape \(4,\): a number, an array \(3, 4\)"),
    "one negative": (GaussianPrior(precision=np.r_[-1.0, np.ones(11)].reshape(3, 4)), "must be positive"),
    "asymmetric": (GaussianPrior(precision=np.triu(np.ones((12, 12)))), "must be symmetric"),
    "indefinite": (GaussianPrior(precision=np.ones((15, 15)) - np.eye(15)), "must be positive definite"),
    "factors": (GaussianPrior(precision=(np.eye(2), np.eye(4))), r"factors have shapes \(2, 2\) and \(4, 4\)"),
    "indefinite factor": (GaussianPrior(precision=(-np.eye(3), np.eye(4))), "first factor must be positive definite"),
    "three factors": (GaussianPrior(precision=(np.eye(3), np.eye(4), np.eye(2))), "The prior's .*factors"),
    "mean's shape": (GaussianPrior(mean=np.zeros(4)), r"mean has shape \(4,\): .*\(3, 4\) or \(3, 5\)"),
    "NaN mean": (GaussianPrior(mean=np.nan), "mean must be finite"),
    "intercept": (GaussianPrior(intercept_precision=0.0), "intercept_precision=0.0 must be a positive number"),
    "NaN intercept": (GaussianPrior(intercept_precision=np.nan), "intercept_precision=nan must be"),
    "intercept's type": (GaussianPrior(intercept_precision="weak"), "intercept_precision='weak' must be"),
    "autoscale": (GaussianPrior(autoscale="no"), "autoscale='no' must be True or False"),
}


@pytest.mark.parametrize(("prior", "match"), WRONG.values(), ids=WRONG.keys())
def test_wrong_priors_are_refused(prior, match):
    model = BayesianSoftmaxRegression(prior)
    with pytest.raises(ValueError, match=match):
        model.fit(X, Y)
    assert not hasattr(model, "solution_")


def test_an_evidence_search_that_ends_early_warns_and_says_where(monkeypatch):
    from posteriori.softmax import searched

    real = searched.maximise_evidence
    monkeypatch.setattr(searched, "maximise_evidence", lambda *given: real(*given) and False)
    with pytest.warns(ConvergenceWarning, match="has not reached it"):
        model = BayesianSoftmaxRegression("ard").fit(X, Y)
    assert model.solution_.evidence_converged is False
    assert model.solution_.evidence_path
