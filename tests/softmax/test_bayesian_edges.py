"""Units and origins, extreme shapes, classes without rows, other populations and wrong labels."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from tests.slow import quick_first

from posteriori import BayesianSoftmaxRegression, GaussianPrior, SoftmaxRegression, Status

pytestmark = pytest.mark.filterwarnings("ignore::posteriori.ApproximationWarning")


def simulated(N, D=4, K=3, seed=0, signal=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    return X, (signal * X @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)


X, Y = simulated(160)
RARE = (np.arange(len(X)) % 40 == 7).astype(float)  # four ones
MARKED = np.column_stack([X, RARE, Y == 2])  # the last column marks a class
AUTOSCALED = {
    "evidence": {"prior": "evidence"},
    "evidence, laplace": {"prior": "evidence", "approximation": "laplace"},
    "ard": {"prior": "ard", "approximation": "laplace"},
    "autoscaled": {"prior": GaussianPrior(precision=2.0, autoscale=True)},
    "autoscaled mean": {"prior": GaussianPrior(np.arange(18.0).reshape(3, 6) / 20, 2.0, autoscale=True)},
    "jeffreys": {"prior": "jeffreys"},
    "kronecker": {"prior": GaussianPrior(precision=2.0, autoscale=True), "posterior": "kronecker"},
    "diagonal": {"prior": GaussianPrior(precision=2.0, autoscale=True), "posterior": "diagonal"},
}

# Units and origins


@pytest.mark.parametrize("options", AUTOSCALED.values(), ids=AUTOSCALED.keys())
@pytest.mark.parametrize(
    ("scale", "shift"),
    quick_first(
        [
            (np.array([1e-6, 1e6, 1.0, 0.3, -1e-3, 12.0]), np.array([0.0, 1e6, -3.0, 40.0, 1e-3, 5.0])),
            (np.array([1e3, 1e-3, 7.0, -1.0, 100.0, 1.0]), np.zeros(6)),
            (np.ones(6), np.array([5.0, -1e3, 0.0, 1e5, 1.0, -2.0])),
        ]
    ),
    ids=["both", "units", "origins"],
)
def test_units_and_origins_do_not_matter(options, scale, shift):
    columns = MARKED if options["prior"] != "jeffreys" else X
    scale, shift = scale[: columns.shape[1]], shift[: columns.shape[1]]
    mapped = columns * scale + shift
    if "mean" in str(options["prior"]) and (scale < 0).any() and np.ndim(options["prior"].mean):
        scale = np.abs(scale)  # a mean has a sign
        mapped = columns * scale + shift
    model = BayesianSoftmaxRegression(**options).fit(columns, Y)
    other = BayesianSoftmaxRegression(**options).fit(mapped, Y)
    tolerance = 1e-8 if np.abs(shift).max() < 1e4 else 1e-6  # 1e5 costs digits of the columns themselves
    np.testing.assert_allclose(other.predict_proba(mapped), model.predict_proba(columns), atol=tolerance)
    size = np.abs(model.coef_).max()
    np.testing.assert_allclose(other.coef_ * scale, model.coef_, atol=1e-6 * size)
    np.testing.assert_allclose(other.intercept_ + other.coef_ @ shift, model.intercept_, atol=1e-4 * size)
    if model.log_evidence_ is not None:
        assert other.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-6)


def test_a_shift_does_not_matter_to_a_number_prior():
    """Its intercept's prior is that of the mean row, wherever that is."""
    shift = np.array([10.0, -300.0, 0.5, 1e3])
    model, other = (BayesianSoftmaxRegression(1.0).fit(Z, Y) for Z in (X, X + shift))
    np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-8)
    np.testing.assert_allclose(other.predict_proba(X + shift), model.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize("options", AUTOSCALED.values(), ids=AUTOSCALED.keys())
def test_sparse_is_dense(options):
    columns = np.where(MARKED > 0, MARKED, 0.0) if options["prior"] != "jeffreys" else np.where(X > 0, X, 0.0)
    dense = BayesianSoftmaxRegression(**options).fit(columns, Y)
    sparse = BayesianSoftmaxRegression(**options).fit(sp.csr_array(columns), Y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-5)
    np.testing.assert_allclose(sparse.predict_proba(columns), dense.predict_proba(columns), atol=1e-5)
    if options["prior"] != "jeffreys":
        assert sparse.log_evidence_ == pytest.approx(dense.log_evidence_, abs=1e-4)


def test_without_an_intercept_units_do_not_matter_but_origins_do():
    scale = np.array([1e3, 1e-3, 7.0, 1.0])
    options = {"prior": "evidence", "approximation": "laplace", "fit_intercept": False}
    model, other, moved = (BayesianSoftmaxRegression(**options).fit(Z, Y) for Z in (X, X * scale, X + 3))
    np.testing.assert_allclose(other.predict_proba(X * scale), model.predict_proba(X), atol=1e-8)
    assert np.abs(moved.predict_proba(X + 3) - model.predict_proba(X)).max() > 0.01


# Extreme shapes


@pytest.mark.parametrize("prior", quick_first([1.0, "evidence", "ard"], 2))
def test_more_features_than_rows(prior):
    X, y = simulated(40, D=150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianSoftmaxRegression(prior).fit(X, y)
    assert model.solution_.status is Status.CONVERGED
    P = model.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.log_evidence_)
    assert model.score(X, y) > 0.4
    _, covariance = model.predict_latent(X[:2])
    assert np.linalg.eigvalsh(covariance).min() > -1e-9


def test_the_weights_lie_in_the_span_of_the_rows():
    X, y = simulated(30, D=200)
    X = X - X.mean(axis=0)
    model = BayesianSoftmaxRegression(0.5, approximation="laplace", predictive="plugin").fit(X, y)
    np.testing.assert_allclose(0.5 * model.coef_, (np.eye(3)[y] - model.predict_proba(X)).T @ X, atol=1e-5)


def test_one_row_of_each_class():
    model = BayesianSoftmaxRegression().fit([[0.0], [1.0]], ["no", "yes"])
    P = model.predict_proba([[0.0], [1.0], [0.5]])
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P[2], 0.5, atol=1e-6)
    assert P[1, 1] > 0.5


def test_one_class_only_is_refused():
    with pytest.raises(ValueError, match="one class only"):
        BayesianSoftmaxRegression().fit(X, np.zeros(len(X), int))


@pytest.mark.parametrize("prior", [1.0, "evidence", "ard"])
@pytest.mark.parametrize("value", [0.0, 1.0, -17.3, 1e6])
def test_constant_columns_change_nothing(prior, value):
    options = {"prior": prior, "approximation": "laplace"}
    model = BayesianSoftmaxRegression(**options).fit(X, Y)
    with_constant = np.insert(X, 2, value, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = BayesianSoftmaxRegression(**options).fit(with_constant, Y)
    assert np.abs(other.coef_[:, 2]).max() < 1e-6
    close = 5e-3 if prior == "evidence" else 2e-4  # a search ends near the top, wherever it came from
    np.testing.assert_allclose(np.delete(other.coef_, 2, axis=1), model.coef_, atol=close)
    np.testing.assert_allclose(other.predict_proba(with_constant), model.predict_proba(X), atol=1e-3)
    assert other.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-2)


def test_duplicated_columns_share_their_weight():
    """Two copies with twice the precision each are one column with it."""
    model = BayesianSoftmaxRegression(1.0, approximation="laplace").fit(X, Y)
    other = BayesianSoftmaxRegression(2.0, approximation="laplace").fit(np.column_stack([X, X]), Y)
    np.testing.assert_allclose(other.coef_, np.tile(model.coef_ / 2, 2), atol=1e-6)
    np.testing.assert_allclose(other.predict_proba(np.column_stack([X, X])), model.predict_proba(X), atol=1e-8)
    assert other.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-6)


def test_two_classes_are_logistic_regression():
    """A precision on both rows is half as much on their difference."""
    y = (Y > 0).astype(int)
    model = BayesianSoftmaxRegression(1.0, approximation="laplace").fit(X, y)
    w = model.coef_[1] - model.coef_[0]
    centre = X.mean(axis=0)

    def J(v):
        f = X @ v[:4] + v[4]
        return (
            np.logaddexp(0, np.where(y, -f, f)).sum()
            + 0.25 * (v[:4] @ v[:4])
            + 0.25 / 6.25 * (v[:4] @ centre + v[4]) ** 2
        )

    np.testing.assert_allclose(w, minimize(J, np.zeros(5), tol=1e-10).x[:4], atol=1e-5)


@pytest.mark.slow
def test_a_hundred_and_twenty_classes():
    rng = np.random.default_rng(0)
    y = np.arange(1200) % 120
    X = rng.normal(size=(1200, 2)) + rng.normal(size=(120, 2))[y] * 2
    model = BayesianSoftmaxRegression(1.0, approximation="laplace").fit(X, y)
    P = model.predict_proba(X[::40])
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(P, model.sample_proba(X[::40], 1000).mean(axis=0), atol=0.03)


# Classes without rows


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prior": 1.0, "approximation": "laplace"},
        {"prior": "ard"},
        {"prior": 1.0, "approximation": "variational"},
        {"prior": 1.0, "approximation": "importance"},
        {"prior": "jeffreys"},
        {"prior": 1.0, "posterior": "kronecker"},
        {"prior": 1.0, "posterior": "diagonal"},
    ],
    ids=str,
)
def test_a_declared_class_without_rows(options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianSoftmaxRegression(classes=[0, 1, 2, 9], **options).fit(X, Y)
        without = BayesianSoftmaxRegression(**options).fit(X, Y)
    assert model.classes_.tolist() == [0, 1, 2, 9]
    assert model.solution_.status is Status.CONVERGED
    P = model.predict_proba(X)
    assert (P[:, 3] > 0).all()
    assert 1e-5 < P[:, 3].mean() < 0.05
    jeffreys = options.get("prior") == "jeffreys"  # half a row to each cell, as it were
    np.testing.assert_allclose(P[:, :3], without.predict_proba(X), atol=0.2 if jeffreys else 0.08)
    for array in (model.coef_, model.intercept_, model.covariance_, *model.predict_latent(X), *model.uncertainty(X)):
        assert np.isfinite(array).all()
    lower, upper = model.predict_interval(X)
    assert (lower <= upper).all()
    assert np.isfinite(model.summary().select_dtypes("number")).all(axis=None)
    with pytest.raises(ValueError, match=r"Classes .*9.* had no rows in the fit"):
        model.with_class_prior([0.25] * 4)


# Other populations


def reweighted(P, old, new):
    P = P * (np.asarray(new) / np.asarray(old))
    return P / P.sum(axis=-1, keepdims=True)


OLD, NEW = np.bincount(Y) / len(Y), np.array([0.7, 0.2, 0.1])


def test_another_class_prior_is_bayes_rule():
    model = BayesianSoftmaxRegression(1.0, predictive="plugin").fit(X, Y)
    before, latent = model.predict_proba(X), model.predict_latent(X)
    other = model.with_class_prior(NEW)
    np.testing.assert_allclose(other.predict_proba(X), reweighted(before, OLD, NEW), atol=1e-12)
    np.testing.assert_allclose(softmax(X @ other.coef_.T + other.intercept_, axis=1), other.predict_proba(X), atol=1e-9)
    np.testing.assert_allclose(other.sample_proba(X, 10), reweighted(model.sample_proba(X, 10), OLD, NEW), atol=1e-12)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    np.testing.assert_array_equal(model.predict_latent(X)[0], latent[0])
    np.testing.assert_allclose(other.predict_latent(X)[1], latent[1])
    np.testing.assert_allclose(
        np.diff(other.predict_latent(X)[0] - latent[0], axis=1),
        np.tile(np.diff(np.log(NEW / OLD)), (len(X), 1)),
        atol=1e-9,
    )


@pytest.mark.parametrize("approximation", quick_first(["laplace", "variational", "importance"]))
@pytest.mark.parametrize("predictive", quick_first(["quasi", "sample"]))
def test_averages_over_a_reweighted_posterior(approximation, predictive):
    model = BayesianSoftmaxRegression(1.0, approximation=approximation, predictive=predictive).fit(X, Y)
    draws = reweighted(model.sample_proba(X, 4000), OLD, NEW)
    other = model.with_class_prior(NEW)
    np.testing.assert_allclose(other.predict_proba(X), draws.mean(axis=0), atol=0.02)
    lower, upper = other.predict_interval(X, 0.9)
    np.testing.assert_allclose(((lower < draws) & (draws < upper)).mean(axis=0), 0.9, atol=0.04)


def test_class_priors_by_name_and_back():
    model = BayesianSoftmaxRegression(1.0).fit(X, Y)
    other = model.with_class_prior({2: 10, 0: 70, 1: 20})
    np.testing.assert_allclose(other.predict_proba(X), model.with_class_prior(NEW).predict_proba(X), atol=1e-12)
    np.testing.assert_allclose(other.with_class_prior(OLD).predict_proba(X), model.predict_proba(X), atol=1e-12)
    np.testing.assert_allclose(other.with_class_prior(OLD).intercept_, model.intercept_, atol=1e-12)


def test_old_frequencies_are_weighted_ones():
    weights = np.where(Y == 0, 3.0, 1.0)
    model = BayesianSoftmaxRegression(1.0, predictive="plugin").fit(X, Y, weights)
    old = np.bincount(Y, weights) / weights.sum()
    np.testing.assert_allclose(
        model.with_class_prior(NEW).predict_proba(X), reweighted(model.predict_proba(X), old, NEW), atol=1e-12
    )


@pytest.mark.parametrize(
    "wrong",
    [
        [0.5, 0.5],
        [0.5, 0.5, 0.0],
        [0.5, 0.6, -0.1],
        [np.nan, 0.5, 0.5],
        [np.inf, 1, 1],
        0.3,
        {0: 0.5, 1: 0.5},
        {0: 1, 1: 1, 2: 1, 3: 1},
    ],
    ids=str,
)
def test_wrong_class_priors_are_refused(wrong):
    model = BayesianSoftmaxRegression(1.0).fit(X, Y)
    with pytest.raises(ValueError, match=r"class_prior (must|has shape)"):
        model.with_class_prior(wrong)


# Wrong labels


def flipped(N, rate, K=3, seed=0):
    """Rows, their labels and what these were before some were replaced by others at random."""
    rng = np.random.default_rng(seed)
    X, clean = simulated(N, K=K, seed=seed, signal=3.0)
    return X, np.where(rng.random(N) < rate, rng.integers(0, K, N), clean), clean


def noisy_optimum(X, y, rate, alpha):
    """The mode of (1 - eps) p_y + eps / K with precision alpha and N(0, 2.5^2) on the mean row's logits."""
    K, (N, D) = y.max() + 1, X.shape

    def J(v):
        theta = v.reshape(K, D + 1)
        p = np.exp(log_softmax(X @ theta[:, :D].T + theta[:, D], axis=1))[np.arange(N), y]
        at_mean = theta[:, :D] @ X.mean(axis=0) + theta[:, D]
        prior = 0.5 * alpha * (theta[:, :D] ** 2).sum() + 0.5 / 6.25 * (at_mean**2).sum()
        return prior - np.log((1 - rate) * p + rate / K).sum()

    return minimize(J, np.zeros(K * (D + 1)), options={"gtol": 1e-7}).x.reshape(K, D + 1)


def test_label_noise_of_a_known_rate_has_its_own_optimum():
    X, y, _ = flipped(300, 0.2)
    theta = noisy_optimum(X, y, 0.2, 1.0)
    model = BayesianSoftmaxRegression(1.0, label_noise=0.2, approximation="laplace").fit(X, y)
    assert model.label_noise_ == 0.2
    np.testing.assert_allclose(model.coef_, theta[:, :-1], atol=0.02)
    np.testing.assert_allclose(model.intercept_, theta[:, -1], atol=0.02)


def test_label_noise_in_columns_of_any_unit_and_origin():
    X, y, _ = flipped(300, 0.2)
    scale, shift = np.array([10.0, 0.1, 1.0, 5.0]), np.array([5.0, 2.0, -20.0, 1.0])
    options = {"prior": "evidence", "label_noise": 0.2, "approximation": "laplace"}
    model, other = (BayesianSoftmaxRegression(**options).fit(Z, y) for Z in (X, X * scale + shift))
    np.testing.assert_allclose(other.predict_proba(X * scale + shift), model.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize(
    "prior", [1.0, "evidence", GaussianPrior(autoscale=True)], ids=["number", "evidence", "scaled"]
)
@pytest.mark.parametrize("given", [0.2, "estimate"])
def test_label_noise_weighs_rows_by_the_chance_that_their_labels_are_their_own(prior, given):
    """A fit with those weights, (1 - eps) p / ((1 - eps) p + eps / K), finds the same coefficients again."""
    X, y, _ = flipped(300, 0.2)
    X += np.array([0.0, 3.0, 50.0, -1.0])
    model = BayesianSoftmaxRegression(prior, label_noise=given, approximation="laplace").fit(X, y)
    own = softmax(X @ model.coef_.T + model.intercept_, axis=1)[np.arange(300), y] * (1 - model.label_noise_)
    weighed = BayesianSoftmaxRegression(prior, approximation="laplace").fit(X, y, own / (own + model.label_noise_ / 3))
    np.testing.assert_allclose(model.coef_, weighed.coef_, atol=5e-3)
    centre = X.mean(axis=0)
    np.testing.assert_allclose(
        model.coef_ @ centre + model.intercept_, weighed.coef_ @ centre + weighed.intercept_, atol=5e-3
    )


@pytest.mark.parametrize("given", [0.25, "estimate"])
def test_label_noise_is_seen_through(given):
    X, y, clean = flipped(3000, 0.25)
    fresh, _, truth = flipped(3000, 0.0, seed=0)
    model = BayesianSoftmaxRegression(1.0, label_noise=given, approximation="laplace").fit(X, y)
    plain = BayesianSoftmaxRegression(1.0, approximation="laplace").fit(X, y)
    assert model.label_noise_ == pytest.approx(0.25, abs=0.06)
    without_noise = model.predict_latent(fresh)[0]
    loss = -log_softmax(without_noise, axis=1)[np.arange(3000), truth].mean()
    plain_loss = -plain.predict_log_proba(fresh)[np.arange(3000), truth].mean()
    assert loss < 0.8 * plain_loss
    best = SoftmaxRegression(1.0).fit(X, clean)
    assert np.corrcoef(model.coef_.ravel(), best.coef_.ravel())[0, 1] > 0.98
    assert np.abs(model.coef_).max() > 1.5 * np.abs(plain.coef_).max()


def test_labels_without_noise_are_found_to_have_little():
    X, y = simulated(3000, signal=1.0)
    assert BayesianSoftmaxRegression(1.0, label_noise="estimate").fit(X, y).label_noise_ < 0.05


@pytest.mark.parametrize("predictive", quick_first(["quasi", "plugin", "sample", "probit"], 2))
def test_probabilities_are_of_labels_as_they_come(predictive):
    X, y, _ = flipped(300, 0.2)
    model = BayesianSoftmaxRegression(1.0, label_noise=0.2, predictive=predictive, approximation="laplace").fit(X, y)
    P = model.predict_proba(X)
    assert P.min() >= 0.2 / 3
    assert P.max() <= 0.8 + 0.2 / 3
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), P, rtol=1e-9)
    if predictive == "plugin":
        p = softmax(X @ model.coef_.T + model.intercept_, axis=1)
        np.testing.assert_allclose(P, 0.8 * p + 0.2 / 3, atol=1e-9)
    draws = model.sample_proba(X, 500)
    assert draws.min() >= 0.2 / 3
    lower, upper = model.predict_interval(X)
    assert lower.min() >= 0.2 / 3 - 1e-12
    assert upper.max() <= 0.8 + 0.2 / 3 + 1e-12


def test_no_label_noise_is_none_at_all():
    none, zero = (BayesianSoftmaxRegression(1.0, label_noise=noise).fit(X, Y) for noise in (None, 0.0))
    assert none.label_noise_ == zero.label_noise_ == 0.0
    np.testing.assert_allclose(zero.predict_proba(X), none.predict_proba(X), atol=1e-9)


def test_label_noise_and_weights_that_are_repetitions():
    X, y, _ = flipped(200, 0.2)
    weights = np.random.default_rng(1).integers(0, 3, 200)
    options = {"prior": 1.0, "label_noise": 0.2, "approximation": "laplace"}
    weighted = BayesianSoftmaxRegression(**options).fit(X, y, weights)
    repeated = BayesianSoftmaxRegression(**options).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=5e-3)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-3)


def test_soft_labels_have_no_label_noise():
    with pytest.raises(ValueError, match="label_noise needs one label"):
        BayesianSoftmaxRegression(1.0, label_noise=0.1).fit(X, np.eye(3)[Y])


@pytest.mark.parametrize(
    "options", [{}, {"predictive": "probit"}, {"posterior": "kronecker"}, {"posterior": "diagonal"}], ids=str
)
def test_rows_however_far_have_the_probabilities_of_their_direction(options):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(60, 2)), np.arange(60) % 3
    model = BayesianSoftmaxRegression(**options).fit(rows + labels[:, None], labels)
    P = model.predict_proba(1e100 * rows)
    for scale in (1e155, 1e200, 1e300):
        np.testing.assert_allclose(model.predict_proba(scale * rows), P, atol=0.01)  # a node may change sides
        assert np.isfinite(model.predict_interval(scale * rows)).all()
        assert np.isfinite(model.uncertainty(scale * rows)).all()
    mixed = model.predict_proba(np.vstack([rows, 1e300 * rows]))
    np.testing.assert_array_equal(mixed[:60], model.predict_proba(rows))
