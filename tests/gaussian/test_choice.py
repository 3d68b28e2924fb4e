"""Priors and structures chosen by left-out rows: against refitting without each row, grids, and known truths."""

import warnings
from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_iris
from tests.gaussian.naive_gaussian import in_shape, is_tied, n_free, shape
from tests.slow import quick_first

from posteriori import GaussianClassifier, NormalInverseWishartPrior
from posteriori.gaussian.choice import Candidate, _as_good
from posteriori.gaussian.structures import STRUCTURES

structures = pytest.mark.parametrize("structure", STRUCTURES)
X, Y = load_iris(return_X_y=True)
X, Y = X[40::3], Y[40::3]  # 4, 17 and 16 rows
N, D, K = *X.shape, 3
ROWS = np.arange(N)
NEW = X + np.random.default_rng(0).normal(scale=0.5, size=X.shape)


def fitted(structure="auto", estimate="bayes", prior="predictive", X=X, y=Y, sample_weight=None, **options):
    return GaussianClassifier(structure, estimate=estimate, prior=prior, **options).fit(X, y, sample_weight)


def left_out(structure, estimate, prior, c=None, **options):
    """-log p(y_n | x_n, the other rows), by fitting without one of each row; prior(n) is the one without it."""
    out = np.empty(N)
    for n in ROWS:
        weights = np.ones(N) if c is None else c.astype(float)
        weights[n] -= min(weights[n], 1.0)
        given = "predictive" if estimate == "mle" else prior(n)
        model = fitted(structure, estimate, given, sample_weight=weights, classes=range(K), **options)
        out[n] = -model.predict_log_proba(X[n : n + 1])[0, Y[n]]
    return out


def without(model, structure):
    """The prior that was sought, less what row n adds to its pooled part: v pooled / N times n_k / (n_k - 1) u u^T."""
    prior, found = model.prior_, model.solution_.hyperparameters
    share = found["dof"] * found["pooled"] / N

    def of(n):
        mine = Y == Y[n]
        u = X[n] - X[mine].mean(axis=0)
        lost = in_shape(structure, np.outer(u, u))
        scale = prior.scale - share * mine.sum() / (mine.sum() - 1) * lost
        return NormalInverseWishartPrior(**prior.get_params() | {"scale": scale})

    return of


# Left-out rows


@structures
@pytest.mark.parametrize("estimate", quick_first(["bayes", "map"]))
def test_scores_of_a_given_prior_are_those_of_refitting(structure, estimate):
    model = fitted(structure, estimate, NormalInverseWishartPrior(kappa=0.3, concentration=1.5))
    losses = left_out(structure, estimate, lambda n: model.prior_)
    assert model.solution_.scores == {structure: pytest.approx(losses.mean(), rel=1e-9)}
    assert model.solution_.n_left_out == N


@pytest.mark.parametrize("structure", quick_first(STRUCTURES, 2))
@pytest.mark.parametrize("estimate", quick_first(["bayes", "map"]))
def test_scores_of_a_sought_prior_are_those_of_refitting(structure, estimate):
    model = fitted(structure, estimate)
    losses = left_out(structure, estimate, without(model, structure))
    assert model.solution_.scores == {structure: pytest.approx(losses.mean(), rel=1e-7)}


@structures
def test_scores_with_weights_remove_one_of_each_row(structure):
    c = np.random.default_rng(1).choice([0.5, 1.0, 2.0, 3.5], N)
    model = fitted(structure, prior=NormalInverseWishartPrior(), sample_weight=c)
    losses = left_out(structure, "bayes", lambda n: model.prior_, c)
    assert model.solution_.scores[structure] == pytest.approx(np.average(losses, weights=c), rel=1e-9)


def test_scores_use_class_probabilities_that_are_given():
    options = {"class_prior": [0.6, 0.3, 0.1]}
    model = fitted("tied", prior=NormalInverseWishartPrior(), **options)
    losses = left_out("tied", "bayes", lambda n: model.prior_, **options)
    assert model.solution_.scores["tied"] == pytest.approx(losses.mean(), rel=1e-9)


def test_scores_of_maximum_likelihood_are_those_of_refitting():
    """But for a ridge of a millionth, with which singular classes can be compared as well."""
    scores = fitted(estimate="mle", X=X[4:], y=Y[4:]).solution_.scores  # classes with more rows than features
    assert set(scores) == set(STRUCTURES)
    for structure in STRUCTURES:
        losses = []
        for n in range(4, N):
            others = (ROWS != n) & (ROWS >= 4)
            model = fitted(structure, "mle", X=X[others], y=Y[others])
            losses.append(-model.predict_log_proba(X[n : n + 1])[0, Y[n] - 1])
        assert scores[structure] == pytest.approx(np.mean(losses), rel=1e-3)


@pytest.mark.parametrize("estimate", ["map", "bayes"])
def test_a_class_known_by_one_row_alone_can_be_left_out(estimate):
    """With "bayes" the prior alone judges it; with "map" no such class is believed in, and it counts for nothing."""
    rows, y = np.vstack([X[4:], X[:1]]), np.append(Y[4:], 0)
    score = fitted("tied", estimate, NormalInverseWishartPrior(), X=rows, y=y).solution_.scores["tied"]
    prior = fitted("tied", estimate, NormalInverseWishartPrior(), X=rows, y=y).prior_
    losses = []
    for n in range(len(y)):
        others = np.delete(np.arange(len(y)), n)
        model = fitted("tied", estimate, prior, X=rows[others], y=y[others], classes=[0, 1, 2])
        losses.append(-model.predict_log_proba(rows[n : n + 1])[0, y[n]])
    assert (losses[-1] == np.inf) == (estimate == "map")
    assert score == pytest.approx(np.where(np.isinf(losses), 0.0, losses).mean(), rel=1e-9)


def test_the_score_promises_what_new_rows_keep():
    """Many features and few rows, where a fit looks much better than it is: the score does not."""
    rng = np.random.default_rng(2)
    of_fit, promised = [], []
    for _ in range(8):
        means = 0.25 * rng.normal(size=(2, 15))
        y = rng.integers(0, 2, 2080)
        rows = rng.normal(size=(2080, 15)) + means[y]
        model = fitted("full", X=rows[:80], y=y[:80])
        losses = -model.predict_log_proba(rows)[np.arange(2080), y]
        of_fit.append(losses[:80].mean() - losses[80:].mean())
        promised.append(model.solution_.scores["full"] - losses[80:].mean())
    assert np.mean(of_fit) < -0.12
    assert abs(np.mean(promised)) < 0.08


# The prior


@structures
def test_no_prior_of_a_grid_predicts_left_out_rows_much_better(structure):
    """kappa, degrees of freedom and scale, also far from where the search begins: less than one nat in all."""
    best = N * fitted(structure).solution_.scores[structure]
    for kappa, v, spread in product([0.01, 0.3, 5.0], [1.0, 10.0, 100.0], [0.03, 0.2, 1.0]):
        score = fitted(structure, prior=wishart(structure, kappa, v, spread)).solution_.scores[structure]
        assert best < N * score + 1.0, (kappa, v, spread)


def wishart(structure, kappa, v, spread, X=X):
    """A prior with v degrees of freedom of its predictive, and the variances of all rows times spread."""
    variance = X.var(axis=0)
    if shape(structure) == "spherical":
        return NormalInverseWishartPrior(kappa=kappa, nu=v, scale=v * spread * variance.sum())
    nu = v + X.shape[1] - 1 if shape(structure) == "full" else v
    return NormalInverseWishartPrior(kappa=kappa, nu=nu, scale=v * spread * variance)


@pytest.mark.parametrize("structure", quick_first(STRUCTURES, 2))
def test_no_prior_of_a_grid_has_more_evidence_than_the_one_sought(structure):
    best = fitted(structure, prior="evidence").log_evidence_
    grid = product(np.geomspace(1e-3, 10, 4), np.geomspace(0.1, 1e3, 4), np.geomspace(1e-3, 10, 4))
    evidences = [fitted(structure, prior=wishart(structure, *point)).log_evidence_ for point in grid]
    assert best > max(evidences) - 0.1


def test_the_evidence_of_its_own_prior_finds_its_degrees_of_freedom_and_scale():
    """Many classes drawn from a known prior: its kappa, nu and scale are found."""
    rng = np.random.default_rng(3)
    classes, n, dof = 60, 12, 8.0
    variances = 2.0 * (dof - 2) / rng.chisquare(dof, size=(classes, 3))  # expectation 2 (dof - 2) / (dof - 2)
    centres = rng.normal(size=(classes, 3)) * np.sqrt(variances / 0.25)
    y = np.repeat(np.arange(classes), n)
    rows = centres[y] + rng.normal(size=(len(y), 3)) * np.sqrt(variances[y])
    prior = fitted("diagonal", prior="evidence", X=rows, y=y).prior_
    assert prior.kappa == pytest.approx(0.25, rel=0.35)
    assert prior.nu == pytest.approx(dof, rel=0.5)
    np.testing.assert_allclose(prior.scale / prior.nu, 2.0 * (dof - 2) / dof, rtol=0.35)


@structures
@pytest.mark.parametrize(("estimate", "prior"), [("bayes", "predictive"), ("map", "evidence")])
def test_the_prior_passed_back_reproduces_the_fit(structure, estimate, prior):
    model = fitted(structure, estimate, prior)
    again = fitted(structure, estimate, model.prior_)
    np.testing.assert_allclose(again.means_, model.means_, rtol=1e-10)
    np.testing.assert_allclose(again.covariances_, model.covariances_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(again.predict_log_proba(NEW), model.predict_log_proba(NEW), rtol=1e-9, atol=1e-9)
    assert again.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-8)
    assert again.prior_.nu == pytest.approx(model.prior_.nu, rel=1e-12)


@structures
def test_the_prior_sought_predicts_better_than_a_fixed_one(structure):
    sought, evidence, fixed = (
        fitted(structure, prior=prior).solution_.scores[structure]
        for prior in ("predictive", "evidence", NormalInverseWishartPrior())
    )
    assert sought < min(evidence, fixed) + 1.0 / N


def test_hyperparameters_are_told():
    solution = fitted("full").solution_
    assert set(solution.hyperparameters) == {"kappa", "dof", "pooled", "spread"}
    assert solution.n_evaluations > 10
    assert fitted("full", prior=NormalInverseWishartPrior()).solution_.hyperparameters == {}
    model = fitted("full")
    found, W = model.solution_.hyperparameters, sum(np.cov(X[Y == k].T, bias=True) * (Y == k).sum() for k in range(K))
    assert model.prior_.kappa == pytest.approx(found["kappa"])
    assert model.prior_.nu == pytest.approx(found["dof"] + D - 1)
    expected = found["dof"] * (found["pooled"] * W / N + found["spread"] * np.diag(X.var(axis=0)))
    np.testing.assert_allclose(model.prior_.scale, expected, rtol=1e-9)


# The structure


def simulated(structure, N=500, seed=0):
    """Three classes of four features with covariances of this structure, not far apart."""
    rng = np.random.default_rng(seed)
    D, y = 4, np.arange(N) % 3
    correlated = np.linalg.cholesky(0.85 * np.ones((D, D)) + 0.15 * np.eye(D))
    flips = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1]])
    tied = is_tied(structure)
    roots = {
        "full": [correlated] * 3 if tied else [np.diag(flip) @ correlated for flip in flips],
        "diagonal": [np.diag([0.1, 1, 10, 100])] * 3
        if tied
        else [np.diag(s) for s in ([1, 3, 1, 1], [3, 1, 1, 2], [1, 1, 3, 0.5])],
        "spherical": [s * np.eye(D) for s in ((1.0, 1.0, 1.0) if tied else (0.5, 1.0, 2.0))],
    }[shape(structure)]
    spread = np.sqrt(np.mean([(A @ A.T).diagonal() for A in roots], axis=0))
    centres = 0.8 * spread * rng.normal(size=(3, D))
    Z = rng.normal(size=(N, D))
    return np.stack([roots[k] @ z + centres[k] for k, z in zip(y, Z, strict=True)]), y


@structures
@pytest.mark.parametrize("estimate", quick_first(["mle", "bayes"]))
def test_the_structure_that_made_the_rows_is_found(structure, estimate):
    rows, y = simulated(structure)
    model = fitted(estimate=estimate, X=rows, y=y)
    assert model.solution_.structure == structure
    assert set(model.solution_.scores) == set(STRUCTURES)


@pytest.mark.parametrize(
    "prior",
    quick_first([NormalInverseWishartPrior(), NormalInverseWishartPrior(kappa=5.0, nu=40.0)]),
)
def test_the_simplest_within_one_standard_error_of_the_best(prior):
    solution = fitted(prior=prior).solution_
    as_used = {s: fitted(s, prior=prior).prior_ for s in STRUCTURES}  # with the means and scales of all rows
    losses = {s: left_out(s, "bayes", lambda n, given=given: given) for s, given in as_used.items()}
    means = {s: loss.mean() for s, loss in losses.items()}
    assert solution.scores == pytest.approx(means, rel=1e-9)
    best = min(means, key=means.get)

    def as_good(s):
        difference = losses[s] - losses[best]
        return difference.mean() <= difference.std() / np.sqrt(N)

    chosen = min(filter(as_good, STRUCTURES), key=lambda s: n_free(s, K, D))
    assert solution.structure == chosen
    assert solution.margin == pytest.approx(min(means[s] for s in STRUCTURES if s != chosen) - means[chosen], rel=1e-6)
    assert (solution.margin < 0) == (chosen != best)
    assert ("predicts left-out rows best" in solution.structure_reason) == (chosen == best)
    if chosen != best:
        assert best in solution.structure_reason
        assert "standard error" in solution.structure_reason


def test_a_structure_that_was_asked_for_is_not_compared():
    solution = fitted("diagonal").solution_
    assert (solution.structure, solution.structure_reason) == ("diagonal", "as asked for")
    assert solution.margin is None
    assert set(solution.scores) == {"diagonal"}


@pytest.mark.parametrize("prior", ["predictive", "evidence", NormalInverseWishartPrior()])
def test_auto_is_the_fit_of_the_structure_it_chose(prior):
    auto = fitted(prior=prior)
    same = fitted(auto.solution_.structure, prior=prior)
    np.testing.assert_allclose(auto.predict_log_proba(NEW), same.predict_log_proba(NEW), rtol=1e-8, atol=1e-8)
    assert auto.log_evidence_ == pytest.approx(same.log_evidence_, abs=1e-6)
    assert auto.covariances_.shape == same.covariances_.shape


def test_matrices_that_would_be_too_large_are_not_looked_at():
    rng = np.random.default_rng(6)
    rows, y = rng.normal(size=(12, 5200)), np.arange(12) % 2
    solution = fitted(prior=NormalInverseWishartPrior(), X=rows, y=y).solution_
    assert set(solution.scores) == {structure for structure in STRUCTURES if shape(structure) != "full"}
    assert "too large" in solution.structure_reason


def test_where_labels_are_noise_the_simplest_structure_will_do():
    rng = np.random.default_rng(5)
    model = fitted(X=rng.normal(size=(300, 4)), y=rng.integers(0, 3, 300))
    assert model.solution_.structure == min(STRUCTURES, key=lambda s: n_free(s, 3, 4))
    assert model.solution_.scores["full"] == pytest.approx(np.log(3), abs=0.03)
    np.testing.assert_allclose(model.predict_proba(NEW[:, :4]).max(), 1 / 3, rtol=0, atol=0.2)


# Always the same


@pytest.mark.parametrize(
    ("structure", "estimate"),
    quick_first([("auto", "mle"), ("full", "bayes"), ("auto", "bayes")], 2),
)
def test_fits_are_deterministic(structure, estimate):
    """Also for another random_state: all rows are looked at where there are few."""
    first, again, other = (fitted(structure, estimate, random_state=seed) for seed in (None, None, 7))
    for model in (again, other):
        np.testing.assert_array_equal(model.predict_log_proba(NEW), first.predict_log_proba(NEW))
        assert model.solution_ == first.solution_
        assert model.log_evidence_ == first.log_evidence_


def test_losses_too_large_for_their_squares_are_compared_without_a_word():
    """Maximum likelihood of rows far away may give a row a loss of 1e200."""

    def candidate(losses):
        return Candidate(STRUCTURES["full"], None, None, {}, np.array(losses), 0)

    weights = np.array([1.0, 1.0, 1e-300])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _as_good(candidate([1.0, 1.5, 2.0]), candidate([1.0, 1.0, 1e200]), weights) is True
        assert _as_good(candidate([1e200, 1e200, 0.0]), candidate([1.0, 1.0, 1.0]), weights) is False
