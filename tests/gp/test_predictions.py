"""What is said of rows: probabilities, intervals, where uncertainty comes from, latents; and what was learned."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from tests.gp.gp_cases import X, Y, assert_probabilities, deep, gp, three_classes  # noqa: E402
from tests.slow import quick_first  # noqa: E402

from posteriori import GPClassifier, kernels  # noqa: E402
from posteriori.gp import base as gp_base  # noqa: E402
from posteriori.gp import predictions as predicting  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::posteriori.ConvergenceWarning")

MANY = np.random.default_rng(5).normal(100, 25, size=(1030, 2))  # more than a block of rows
ONE = kernels.RBF(30.0)
FAR = np.array([[1e12, 1e12], [-1e12, 0.0], [0.0, 3e5]])
makers = pytest.mark.parametrize("make", [gp, deep])


@pytest.fixture(scope="module")
def models():
    return {gp: gp().fit(X, Y), deep: deep().fit(X, Y)}


def entropy(P):
    return -(P * np.log(P)).sum(axis=-1)


# Probabilities


@makers
def test_probabilities_are_probabilities_and_agree_with_each_other(make, models):
    model = models[make]
    rows = np.vstack([X, FAR])
    P = model.predict_proba(rows)
    assert_probabilities(P, 43)
    np.testing.assert_allclose(model.predict_log_proba(rows), np.log(P), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(rows), P.argmax(axis=1))
    assert model.score(X, Y) == (P[:40].argmax(axis=1) == Y).mean() > 0.85


@makers
def test_a_row_has_the_same_probabilities_in_any_company_and_order(make, models):
    model = models[make]
    P = model.predict_proba(X)
    order = np.random.default_rng(0).permutation(40)
    np.testing.assert_allclose(model.predict_proba(X[order]), P[order], rtol=0, atol=1e-12)
    for some in (slice(0, 1), slice(3, 10)):
        np.testing.assert_allclose(model.predict_proba(X[some]), P[some], rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(np.vstack([FAR, X]))[3:], P, rtol=0, atol=1e-12)


def test_a_row_has_the_same_probabilities_in_any_block(models):
    P = models[gp].predict_proba(MANY)
    for some in (slice(0, 40), slice(1000, 1030)):
        np.testing.assert_allclose(models[gp].predict_proba(MANY[some]), P[some], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (gp, "predict_interval"),
        (deep, "uncertainty"),
        (deep, "predict_latent"),
        pytest.param(gp, "uncertainty", marks=pytest.mark.slow),
        pytest.param(gp, "predict_latent", marks=pytest.mark.slow),
        pytest.param(deep, "predict_interval", marks=pytest.mark.slow),
    ],
)
def test_whatever_is_said_of_a_row_is_said_in_any_company(make, name, models, monkeypatch):
    monkeypatch.setattr(gp_base, "_DRAWN_BLOCK", 8)
    say = getattr(models[make], name)
    for together, alone in zip(say(MANY[:20]), say(MANY[14:20]), strict=True):
        np.testing.assert_allclose(alone, together[14:], rtol=1e-9, atol=1e-9)


def test_prediction_changes_nothing(models):
    before = vars(models[gp]).copy()
    models[gp].predict_proba(X)
    models[gp].predict_interval(X[:8])
    models[gp].uncertainty(X[:8])
    assert vars(models[gp]) == before


# Intervals


@makers
def test_intervals_hold_the_probabilities_and_widen_with_their_level(make, models):
    """Nearly: the mean of what is hardly ever above zero lies above nearly all of it."""
    model, rows = models[make], np.vstack([X[:5], FAR])
    P = model.predict_proba(rows)
    inner = None
    for level in (0.5, 0.9, 0.99):
        lower, upper = model.predict_interval(rows, level)
        assert lower.shape == upper.shape == (8, 3)
        assert ((0.0 <= lower) & (lower <= upper) & (upper <= 1.0)).all()
        if inner is not None:
            assert ((lower <= inner[0]) & (inner[1] <= upper)).all()
            assert ((lower - 0.05 <= P) & (P <= upper + 0.05)).all()
        inner = lower, upper


def test_an_interval_is_the_quantiles_of_probabilities_at_draws_of_the_latents(models):
    """By plain sampling, and the probit's integral over noise by more of it: 2 classes of 3 at one row."""
    model = models[gp]
    rng = np.random.default_rng(0)
    mean, covariance = model.predict_latent(X[:1])
    f = rng.multivariate_normal(mean[0], covariance[0], size=2000)
    wins = (f[:, None, :] + rng.normal(size=(2000, 1000, 3))).argmax(axis=2)
    rate = model.mislabelling_
    share = np.stack([(wins == k).mean(axis=1) for k in range(3)], axis=1)
    P = (1 - rate) * share + rate / 2 * (1 - share)
    lower, upper = model.predict_interval(X[:1], 0.8)
    np.testing.assert_allclose(lower[0], np.quantile(P, 0.1, axis=0), atol=0.03)
    np.testing.assert_allclose(upper[0], np.quantile(P, 0.9, axis=0), atol=0.03)
    np.testing.assert_allclose(model.predict_proba(X[:1])[0], P.mean(axis=0), atol=0.02)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 95, "high", None])
def test_a_level_is_a_share(level, models):
    with pytest.raises(ValueError, match="level"):
        models[gp].predict_interval(X, level)


# Uncertainty


@makers
def test_uncertainty_adds_up(make, models):
    rows = np.vstack([X[:5], FAR])
    total, aleatoric, epistemic = models[make].uncertainty(rows)
    assert total.shape == aleatoric.shape == epistemic.shape == (8,)
    assert (epistemic >= 0.0).all()
    assert ((aleatoric >= 0.0) & (total <= np.log(3) + 1e-9)).all()
    np.testing.assert_allclose(total, aleatoric + epistemic, rtol=0, atol=1e-9)


@makers
def test_uncertainty_in_all_is_the_entropy_of_the_probabilities(make):
    """Without mislabelled rows, and where probabilities are not made surer than the posterior is."""
    model = make(mislabelling=0.0, calibrate=False).fit(X, Y)
    total = model.uncertainty(X[:8]).total
    np.testing.assert_allclose(total, entropy(model.predict_proba(X[:8])), rtol=1e-12, atol=1e-12)


@makers
def test_draws_have_the_mean_that_is_integrated(make, models):
    """Also where hidden samples are quasi-random themselves: nodes of both must not move together."""
    fitted = models[make]._fitted
    with jax.enable_x64(True):
        mean, variance = fitted.latents(models[make]._standardised(X[:8]))
        P = predicting.drawn_probabilities(fitted.node, mean, variance, 512).mean(axis=0)
        exact = predicting.mean_probabilities(fitted.node, mean, variance)
    np.testing.assert_allclose(P, exact, rtol=0, atol=0.01)


@makers
def test_more_data_would_help_most_where_there_is_none(make, models):
    epistemic = models[make].uncertainty(np.vstack([X, FAR])).epistemic
    assert epistemic[40:].min() > epistemic[:40].max()


@pytest.mark.filterwarnings("ignore::posteriori.ApproximationWarning")
def test_more_data_leave_less_to_be_known():
    """Rows that weigh nine are there nine times; kernel and scale are held."""
    few, many = (gp(max_iter=0).fit(X, Y, weight).uncertainty(X[:8]).epistemic.mean() for weight in (1.0, 9.0))
    assert many < 0.6 * few


# Latents


@makers
def test_latents_have_symmetric_covariances_without_negative_directions(make, models):
    mean, covariance = models[make].predict_latent(X)
    assert mean.shape == (40, 3)
    assert covariance.shape == (40, 3, 3)
    np.testing.assert_array_equal(covariance, covariance.swapaxes(1, 2))
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    off = covariance[:, ~np.eye(3, dtype=bool)]
    if make is gp:  # classes have functions of their own; with hidden layers they share what is below
        np.testing.assert_array_equal(off, 0.0)
    else:
        assert np.abs(off).max() > 1e-6


def test_the_largest_latent_is_the_class_predicted(models):
    mean, _ = models[gp].predict_latent(X)
    assert (mean.argmax(axis=1) == models[gp].predict(X)).mean() > 0.9


@pytest.mark.slow
def test_far_away_latents_are_those_of_the_prior():
    model = gp(kernel=ONE, max_iter=0, calibrate=False).fit(X, Y)
    mean, covariance = model.predict_latent(FAR)
    np.testing.assert_allclose(mean, 0.0, atol=1e-9)
    np.testing.assert_allclose(covariance, np.tile(np.diag(model.scale_**2), (3, 1, 1)), rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(FAR), 1 / 3, rtol=0, atol=1e-6)


def test_calibration_makes_probabilities_surer_and_nothing_else_narrower():
    """Twelve clear groups of rows: left-out rows are predicted better than the posterior says."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, 2)) * 6
    many, labels = np.repeat(centres, 12, axis=0) + 0.3 * rng.normal(size=(144, 2)), np.repeat(np.arange(12) % 3, 12)
    model, plain = (GPClassifier(calibrate=c, max_iter=5).fit(many, labels) for c in (True, False))
    assert plain.spread_ == 1.0
    assert model.spread_ < 0.9
    for ours, theirs in zip(model.predict_latent(X), plain.predict_latent(X), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(model.predict_interval(X[:8]), plain.predict_interval(X[:8]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(model.uncertainty(X), plain.uncertainty(X), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert model.predict_proba(many).max(axis=1).mean() > plain.predict_proba(many).max(axis=1).mean()
    assert model.log_evidence_ == plain.log_evidence_


# Symmetry


def test_other_names_of_classes_give_the_same_probabilities_in_another_order():
    new = np.array([2, 0, 1])
    model, other = gp(max_iter=0).fit(X, Y), gp(max_iter=0).fit(X, new[Y])
    np.testing.assert_allclose(other.predict_proba(X)[:, new], model.predict_proba(X), rtol=0, atol=1e-6)
    assert other.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-3)


def test_the_order_of_columns_does_not_matter():
    model, other = gp().fit(X, Y), gp().fit(X[:, ::-1], Y)
    np.testing.assert_allclose(other.predict_proba(X[:, ::-1]), model.predict_proba(X), rtol=0, atol=0.02)
    np.testing.assert_allclose(other.relevances_[::-1], model.relevances_, rtol=0.1)


# Other likelihoods and inferences


@pytest.mark.slow
def test_the_energy_of_tied_sites_gives_probabilities_and_nothing_else(models):
    model = gp(inference="energy", max_iter=100).fit(X, Y)
    P = model.predict_proba(X)
    assert_probabilities(P, 40)
    assert model.score(X, Y) > 0.85
    assert np.abs(P - models[gp].predict_proba(X)).mean() < 0.15
    for ask in (model.predict_interval, model.uncertainty, lambda X: model.log_evidence_):
        with pytest.raises(ValueError, match=r"inference='energy'.*too wide.*would mislead.*inference='ep' or 'vi'"):
            ask(X)


@pytest.mark.filterwarnings("ignore::posteriori.ApproximationWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"likelihood": "softmax", "inference": "vi"},
        pytest.param({"likelihood": "softmax"}, marks=pytest.mark.slow),
        pytest.param({"likelihood": "argmax", "inference": "vi"}, marks=pytest.mark.slow),
        pytest.param({"likelihood": "argmax", "power": 0.5}, marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_every_inference_learns_and_is_near_the_others(options, models):
    model = gp(**options).fit(X, Y)
    P = model.predict_proba(X)
    assert_probabilities(P, 40)
    assert model.score(X, Y) > 0.85
    assert np.abs(P - models[gp].predict_proba(X)).mean() < 0.15
    lower, upper = model.predict_interval(X[:8])
    assert ((0.0 <= lower) & (lower <= upper) & (upper <= 1.0 + 1e-12)).all()
    assert np.isfinite(model.uncertainty(X[:8])).all()
    start = gp(**options, max_iter=0).fit(X, Y)
    assert model.log_evidence_ > start.log_evidence_ + 1.0


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["softmax", "argmax"])
def test_powers_lead_from_expectation_propagation_to_variational_inference(likelihood):
    """With kernel and scale held, probabilities and evidence of a tiny power are those of the bound, and below EP's."""
    steps = ({}, {"power": 0.02}, {"inference": "vi"})
    fits = [gp(likelihood=likelihood, max_iter=0, calibrate=False, **options).fit(X, Y) for options in steps]
    P, Q, R = (model.predict_proba(X) for model in fits)
    assert np.abs(Q - R).max() < 0.1 * np.abs(P - R).max()
    ep, nearly, vi = (model.log_evidence_ for model in fits)
    assert vi < nearly < ep
    assert nearly - vi < 0.1 * (ep - vi)


@pytest.mark.parametrize("inference", ["ep", pytest.param("energy", marks=pytest.mark.slow)])
def test_no_hidden_layers_are_a_single_layer(inference):
    model, other = deep(layers=(), inference=inference, learning_rate=0.1), gp(inference=inference)
    for each in (model, other):
        each.set_params(max_iter=100).fit(X, Y)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), rtol=0, atol=1e-12)
    assert model.solution_.energy == other.solution_.energy


@pytest.mark.slow
def test_the_rate_of_mislabelled_rows_is_learned():
    rows, y = three_classes(200, noise=0.0, seed=4)
    rng = np.random.default_rng(4)
    flipped = np.where(rng.random(200) < 0.1, (y + rng.integers(1, 3, 200)) % 3, y)
    noisy, clean = (gp(mislabelling="learn", max_iter=400).fit(rows, labels) for labels in (flipped, y))
    assert noisy.mislabelling_ == pytest.approx((y != flipped).mean(), abs=0.04)
    assert (noisy.predict(rows) == y).mean() > 0.95  # rows of a wrong label are told as what they are
    assert clean.mislabelling_ < 0.02


def test_the_usual_rate_stays(models):
    assert models[gp].mislabelling_ == pytest.approx(0.001, rel=1e-12)
    assert models[gp].predict_proba(X).min() >= 0.0005  # the rate, shared by the two other classes


@pytest.mark.slow
def test_any_given_rate_stays():
    model = gp(mislabelling=0.2, max_iter=20).fit(X, Y)
    assert model.mislabelling_ == pytest.approx(0.2, rel=1e-12)
    assert model.predict_proba(X).min() >= 0.1


# What was learned


SUM = kernels.RBF((30.0, 10.0), fixed=True) + 2.0 * kernels.Linear((50.0, 60.0)) + 0.5


def flat(kernel):
    """All numbers of a kernel, each lengthscale as many times as it may stand for."""
    if isinstance(kernel, (kernels.Sum, kernels.Product)):
        return [*flat(kernel.left), *flat(kernel.right)]
    if isinstance(kernel, kernels.Constant):
        return [kernel.variance]
    return [*np.broadcast_to(kernel.lengthscale, 2)]


@pytest.mark.parametrize(
    ("kernel", "lengthscales"), quick_first([(ONE, (30.0, 30.0)), (SUM, (30.0, 10.0))]), ids=["one", "sum"]
)
def test_no_steps_keep_the_kernel_as_given(kernel, lengthscales):
    """In the units of the data, whatever happens inside."""
    model = gp(kernel=kernel, max_iter=0, calibrate=False).fit(X, Y)
    np.testing.assert_allclose(flat(model.kernel_), flat(kernel), rtol=1e-12)
    assert type(model.kernel_) is type(kernel)
    np.testing.assert_allclose(model.lengthscales_, lengthscales, rtol=1e-12)
    np.testing.assert_allclose(model.relevances_, X.std(axis=0) / lengthscales, rtol=1e-12)
    assert model.solution_.n_iter == 0


@pytest.mark.slow
def test_fixed_lengthscales_stay_while_the_rest_is_learned():
    model = gp(kernel=SUM, calibrate=False).fit(X, Y)
    np.testing.assert_allclose(model.lengthscales_, (30.0, 10.0), rtol=1e-12)
    before, after = flat(SUM)[2:], flat(model.kernel_)[2:]
    assert np.abs(np.log(np.divide(after, before))).min() > 0.01
    assert np.abs(np.log(model.scale_ / gp(kernel=SUM, max_iter=0, calibrate=False).fit(X, Y).scale_)).min() > 0.01


@pytest.mark.slow
def test_one_lengthscale_for_all_features_stays_one():
    model = gp(kernel=kernels.RBF(30.0, ard=False)).fit(X, Y)
    np.testing.assert_allclose(*model.lengthscales_, rtol=1e-9)
    assert abs(np.log(model.lengthscales_[0] / 30.0)) > 0.01


def test_the_kernel_found_is_where_the_next_fit_can_begin(models):
    model = models[gp]
    again = gp(kernel=model.kernel_, max_iter=0).fit(X, Y)
    np.testing.assert_allclose(again.relevances_, model.relevances_, rtol=1e-9)


def test_features_that_matter_have_larger_relevances():
    """Three classes along the first column: the second is noise, and hardly changes what is predicted."""
    y = np.digitize(X[:, 0], np.quantile(X[:, 0], [1 / 3, 2 / 3]))
    model = gp(max_iter=200).fit(X, y)
    assert model.relevances_[0] > 3.0 * model.relevances_[1]
    assert model.lengthscales_[0] * 3.0 < model.lengthscales_[1]
    moved = model.predict_proba(X + np.array([0.0, 20.0]))
    assert np.abs(moved - model.predict_proba(X)).mean() < 0.1


def test_learning_finds_more_evidence():
    start, learned = gp(max_iter=0).fit(X, Y), gp(max_iter=200).fit(X, Y)
    assert learned.log_evidence_ > start.log_evidence_ + 1.0


def test_evidence_tells_labels_that_have_to_do_with_the_features():
    shuffled = np.random.default_rng(0).permutation(Y)
    assert gp().fit(X, Y).log_evidence_ > gp().fit(X, shuffled).log_evidence_ + 5.0


def test_a_label_by_chance_has_nearly_the_evidence_of_the_class_frequencies():
    """40 log(1/3): what remains if nothing can be learned."""
    rng = np.random.default_rng(1)
    rows, y = rng.normal(size=(40, 2)), np.arange(40) % 3
    model = gp(max_iter=200).fit(rows, y)
    assert model.log_evidence_ == pytest.approx(40 * np.log(1 / 3), abs=4.0)
    assert np.abs(model.predict_proba(rows) - 1 / 3).mean() < 0.1


def test_inducing_inputs_lie_among_the_rows(models):
    Z = models[gp].inducing_inputs_
    assert Z.shape == (15, 2)
    spread = X.std(axis=0)
    assert (Z > X.min(axis=0) - spread).all()
    assert (Z < X.max(axis=0) + spread).all()
