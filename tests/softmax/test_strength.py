"""How strong a prior is: by evidence, unless left-out rows deny it; by folds where Hessians are too large."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from posteriori import BayesianSoftmaxRegression, GaussianPrior
from posteriori.rows.engines import read_for_fit
from posteriori.softmax.evidence import Hyperprior
from posteriori.softmax.folds import Folds, _vertex, best_factor
from posteriori.softmax.laplace import laplace
from posteriori.softmax.leave_one_out import Referee
from posteriori.softmax.likelihood import linear_likelihood
from posteriori.softmax.mode import SolveSettings, find_mode
from posteriori.softmax.searched import EvidencePrior
from posteriori.softmax.strength import Strengths
from posteriori.solvers.automatic import Automatic

SETTINGS = SolveSettings(Automatic(), 1e-10, 1000)


def likelihood_of(X, y, weights=None):
    features, target, _ = read_for_fit(X, y, weights, None, None, device=None)
    return linear_likelihood(features, target, True, EvidencePrior().coordinate_rule(True), 1)


def found_by(likelihood, prior=None):
    prior = EvidencePrior() if prior is None else prior
    return prior.find_mode(likelihood, SETTINGS, "full")


def gaussian_rows(N=120, D=6, K=3, signal=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    return X, (signal * X @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)


def separable(N=80, D=12, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % 3
    return rng.normal(size=(N, D)) + 2.2 * np.eye(3, D)[y] * np.array([1.0, 3.0, 5.0])[y][:, None], y


def strengths_of(X, y, weights=None):
    likelihood = likelihood_of(X, y, weights)
    found = found_by(likelihood)
    family = EvidencePrior().strengths(likelihood, found.objective.prior)
    at_mode = laplace(found.objective, found.theta)
    return Strengths(family.objective_at, found.objective, at_mode, Referee(found.objective.blocks, 3)), family


def test_a_strength_is_the_mode_with_that_many_times_the_precision():
    X, y = gaussian_rows()
    strengths, family = strengths_of(X, y)
    base = strengths[0].objective.prior.values
    for step in (-2, 1, 3):
        at = strengths[step]
        assert at.factor == pytest.approx(4.0**step)
        np.testing.assert_allclose(at.objective.prior.values[:, :-1], 4.0**step * base[:, :-1])
        np.testing.assert_allclose(at.objective.prior.values[:, -1], min(base[0, -1], 4.0**step * base[0, 0]))
        again = find_mode(family.objective_at(4.0**step), SETTINGS)
        np.testing.assert_allclose(at.at_mode.posterior.mean, again.theta, atol=1e-3)
        assert at.at_mode.log_evidence == pytest.approx(laplace(at.objective, again.theta).log_evidence, abs=1e-3)
    assert [point.factor for point in strengths.path] == sorted(point.factor for point in strengths.path)


def test_the_mode_alone_is_scored_as_the_referee_scores_it():
    strengths, _ = strengths_of(*gaussian_rows())
    judged = strengths.referee.scores(strengths[0].at_mode.posterior)
    np.testing.assert_allclose(strengths[0].log_p, judged.plugin, atol=1e-12)


def test_a_gain_and_its_error_are_those_of_paired_differences():
    X, y = gaussian_rows()
    referee = Referee(likelihood_of(X, y).blocks, 3)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, len(y)))
    gain, error = referee.gain(a, b)
    assert gain == pytest.approx((a - b).mean())
    assert error == pytest.approx((a - b).std() / np.sqrt(len(y)))


def test_a_weight_of_two_counts_as_two_rows():
    X, y = gaussian_rows(60)
    weights = np.where(np.arange(60) < 20, 2.0, 1.0)
    repeated = np.repeat(np.arange(60), weights.astype(int))
    one, two = strengths_of(X, y, weights)[0], strengths_of(X[repeated], y[repeated])[0]
    assert one.referee.loss(one[0].log_p) == pytest.approx(two.referee.loss(two[0].log_p), abs=1e-6)
    for mine, theirs in zip(
        one.referee.gain(one[1].log_p, one[0].log_p), two.referee.gain(two[1].log_p, two[0].log_p), strict=True
    ):
        assert mine == pytest.approx(theirs, abs=1e-6)


def test_left_out_rows_overrule_the_evidence_by_a_standard_error():
    """Few rows of many columns: the evidence prefers a prior that hardly lets anything be learned."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 4
    X = rng.normal(size=(60, 900))
    X[:, :40] += 1.5 * rng.normal(size=(4, 40))[y]
    model = BayesianSoftmaxRegression().fit(X, y)
    solution = model.solution_
    assert "times the precision of highest evidence: left-out rows are predicted better" in solution.strength_reason
    losses = {point.factor: point.loss for point in solution.strength_path}
    best = min(losses, key=losses.get)
    assert best < 1.0
    assert losses[best] < losses[1.0] - 0.01
    searched = np.exp(solution.evidence_path[-1].u[0])
    used = np.median(model.prior_.precision / X.var(axis=0))
    assert used == pytest.approx(best * searched, rel=1e-6)
    new = rng.normal(size=(400, 900))
    truth = np.arange(400) % 4
    given = BayesianSoftmaxRegression(GaussianPrior(precision=searched, autoscale=True), predictive="plugin").fit(X, y)
    shift = np.zeros((4, 900))
    shift[:, :40] = X[:, :40].reshape(15, 4, 40).mean(axis=0)
    new[:, :40] += shift[truth][:, :40]
    rows = np.arange(400)
    assert -np.log(model.predict_proba(new)[rows, truth]).mean() < -np.log(given.predict_proba(new)[rows, truth]).mean()


def test_an_approximation_that_was_asked_for_keeps_the_precision_of_the_evidence():
    X, y = separable()
    asked = BayesianSoftmaxRegression(approximation="laplace").fit(X, y)
    searched = np.exp(asked.solution_.evidence_path[-1].u[0])
    assert np.median(asked.prior_.precision / X.var(axis=0)) == pytest.approx(searched, rel=1e-6)


def test_the_hyperprior_holds_the_precision_where_classes_are_separated():
    """Without it the evidence of separated classes grows as the prior vanishes."""
    X, y = separable()
    model = BayesianSoftmaxRegression(approximation="laplace").fit(X, y)
    point = model.solution_.evidence_path[-1]
    assert point.u[0] > np.log(0.5 * 12) - 8.0
    assert point.height == pytest.approx(point.log_evidence + Hyperprior(np.log(6.0)).log_density(point.u[0]))
    assert abs(point.gradient[0]) < 0.1


def test_the_hyperprior_is_a_normal_density():
    prior = Hyperprior(1.0)
    step = 1e-6
    for u in (-3.0, 1.0, 4.0):
        slope = (prior.log_density(u + step) - prior.log_density(u - step)) / (2 * step)
        assert prior.slope(u) == pytest.approx(slope, abs=1e-6)
    assert prior.log_density(1.0) - prior.log_density(2.5) == pytest.approx(0.5)


# By folds


def test_the_loss_of_folds_is_that_of_refits():
    X, y = gaussian_rows(90)
    likelihood = likelihood_of(X, y)
    objective = found_by(likelihood).objective
    folds = Folds(likelihood)
    assert sorted(np.bincount(folds.dealt)) == [18] * 5
    for k in range(3):
        counts = np.bincount(folds.dealt[y == k], minlength=5)
        assert counts.max() - counts.min() <= 1
    total = 0.0
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    for fold in range(5):
        out = folds.dealt == fold
        inner = likelihood_of(Z[~out], y[~out])
        rows = type(inner.blocks)(Z[~out], y[~out], None, 3)
        problem = type(objective)(rows, type(inner.observed).of(rows, 3), objective.prior)
        theta = find_mode(problem, SETTINGS).theta
        F = np.column_stack([Z[out], np.ones(out.sum())]) @ theta.T
        total -= (F[np.arange(out.sum()), y[out]] - np.logaddexp.reduce(F, axis=1)).sum()
    assert folds.loss(objective.prior) == pytest.approx(total / 90, rel=2e-3)


def test_the_best_factor_is_near_that_of_a_fine_grid():
    X, y = gaussian_rows(150, D=20, signal=0.4)
    likelihood = likelihood_of(X, y)
    family = EvidencePrior().strengths(likelihood, found_by(likelihood).objective.prior)
    factor, path = best_factor(Folds(likelihood), family.objective_at)
    grid = 4.0 ** np.arange(-3.0, 3.1, 0.5)
    folds = Folds(likelihood)
    losses = [folds.loss(family.objective_at(g).prior) for g in grid]
    assert folds.loss(family.objective_at(factor).prior) < min(losses) + 2e-3
    assert len(path) >= 3
    assert all(point.log_evidence is None for point in path)


def test_the_vertex_of_a_parabola():
    def parabola(x):
        return (x - 0.3) ** 2 + 5.0

    assert _vertex(parabola(-1.0), parabola(0.0), parabola(1.0)) == pytest.approx(0.3)
    assert _vertex(1.0, 1.0, 1.0) == 0.0
    assert _vertex(10.0, 0.0, 0.0) == 0.5


@pytest.mark.slow
def test_thousands_of_parameters_predict_as_well_as_cross_validation():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 150))
    y = (X @ (rng.normal(size=(150, 12)) * 0.15) + 0.3 * rng.gumbel(size=(900, 12))).argmax(axis=1)
    model = BayesianSoftmaxRegression().fit(X[:600], y[:600])
    assert model.solution_.structure == "classes"
    assert model.solution_.strength_reason == "folds of the rows are predicted best"
    rows = np.arange(300)

    def loss(other):
        return -other.predict_log_proba(X[600:])[rows, y[600:]].mean()

    others = [LogisticRegression(C=C, max_iter=500).fit(X[:600], y[:600]) for C in (0.01, 0.1, 1.0)]
    assert loss(model) < min(map(loss, others)) + 0.05
    lower, upper = model.predict_interval(X[600:610])
    assert ((lower <= upper) & (lower >= 0) & (upper <= 1)).all()
