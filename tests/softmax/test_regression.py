"""What is minimised is J exactly as written, and the peers agree on where its minimum is."""

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from statsmodels.discrete.discrete_model import MNLogit
from tests.slow import quick_first

from posteriori import SoftmaxRegression

N, D = 90, 3


def problem(K=3, seed=0):
    """Overlapping classes: a finite optimum exists without any prior."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * [1.0, 5.0, 0.3] + [0.0, 20.0, -1.0]
    logits = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=(D, K))
    return X, (logits + rng.gumbel(size=(N, K))).argmax(axis=1), rng


X, LABELS, RNG = problem()
TARGETS = {
    "labels": np.eye(3)[LABELS],
    "soft": 0.5 * np.eye(3)[LABELS] + 0.5 * RNG.dirichlet(np.ones(3), N),
    "counts": RNG.integers(0, 4, (N, 3)) + 2 * np.eye(3, dtype=int)[LABELS],
}
WEIGHTS = RNG.uniform(0.1, 3.0, N)
ALPHAS = {"none": 0.0, "number": 0.7, "array": RNG.uniform(0.1, 2.0, (3, D))}
INTERCEPTS = {
    "free": {"penalize_intercept": False},
    "alpha": {"penalize_intercept": True},
    "number": {"penalize_intercept": 0.3},
    "absent": {"fit_intercept": False},
}


def objective_gradient(model, X, Y, c, alpha, intercept_precision):
    """J = -sum_n c_n sum_k Y_nk log P_nk + 1/2 sum a W^2 + 1/2 a_0 sum b^2 and its gradients in W and b."""
    W, b = model.coef_, model.intercept_
    logits = X @ W.T + b
    log_probs = logits - logsumexp(logits, axis=1, keepdims=True)
    J = -(c[:, None] * Y * log_probs).sum() + 0.5 * (alpha * W**2).sum() + 0.5 * intercept_precision * (b**2).sum()
    residual = c[:, None] * (Y.sum(axis=1, keepdims=True) * np.exp(log_probs) - Y)
    return J, residual.T @ X + alpha * W, residual.sum(axis=0) + intercept_precision * b


def class_factors(class_weight, Y, c):
    if class_weight == "balanced":
        mass = c @ Y
        return mass.sum() / (len(mass) * mass)
    return np.array([(class_weight or {}).get(k, 1.0) for k in range(Y.shape[1])])


@pytest.mark.parametrize("class_weight", quick_first([{0: 2.0, 2: 0.5}, None, "balanced"]), ids=str)
@pytest.mark.parametrize("weighted", quick_first([True, False]))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("alpha", "intercept"), [(a, i) for a in ALPHAS for i in INTERCEPTS if (a, i) != ("array", "alpha")]
)
def test_minimises_the_objective_as_written(alpha, intercept, target, weighted, class_weight):
    y = LABELS if target == "labels" else TARGETS[target]
    model = SoftmaxRegression(ALPHAS[alpha], **INTERCEPTS[intercept], class_weight=class_weight)
    model.fit(X, y, sample_weight=WEIGHTS if weighted else None)

    c = WEIGHTS if weighted else np.ones(N)
    Y = TARGETS[target]
    Y = Y * class_factors(class_weight, Y, c)
    precision = {"alpha": ALPHAS[alpha], "number": 0.3}.get(intercept, 0.0)
    J, dW, db = objective_gradient(model, X, Y, c, ALPHAS[alpha], precision)
    assert model.solution_.objective == pytest.approx(J, rel=1e-11)
    scale = (c[:, None] * Y).sum() * np.abs(X).mean(axis=0)
    assert (np.abs(dW) <= 1e-8 * scale).all()
    if intercept == "absent":
        assert (model.intercept_ == 0).all()
    else:
        assert np.abs(db).max() <= 1e-8 * (c[:, None] * Y).sum()


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", quick_first([1.0, 0.01, 30.0]))
@pytest.mark.parametrize("K", [2, 3])
def test_agrees_with_scikit_learn(K, alpha, fit_intercept, weights):
    X, y, _ = problem(K)
    peer = LogisticRegression(
        C=(1 if K > 2 else 2) / alpha, fit_intercept=fit_intercept, solver="newton-cholesky", tol=1e-12
    ).fit(X, y, weights)
    model = SoftmaxRegression(alpha, fit_intercept=fit_intercept).fit(X, y, weights)
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X), atol=1e-6)
    ours = np.column_stack([model.coef_, model.intercept_])
    theirs = np.column_stack([peer.coef_, np.broadcast_to(peer.intercept_, len(peer.coef_))])
    theirs = theirs if K == 2 else theirs[1:] - theirs[0]
    np.testing.assert_allclose(ours[1:] - ours[0], theirs, atol=1e-6)


@pytest.mark.parametrize("K", [2, 3, 4])
def test_maximum_likelihood_agrees_with_statsmodels(K):
    X, y, _ = problem(K)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    peer = MNLogit(y, np.column_stack([Z, np.ones(N)])).fit(method="newton", maxiter=100, tol=1e-14, disp=0)
    model = SoftmaxRegression(alpha=0.0).fit(Z, y)
    ours = np.column_stack([model.coef_, model.intercept_])
    np.testing.assert_allclose(ours[1:] - ours[0], peer.params.T, atol=1e-6)
    assert model.solution_.objective == pytest.approx(-peer.llf, rel=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_two_classes_have_opposite_rows(alpha):
    X, y, _ = problem(2)
    model = SoftmaxRegression(alpha).fit(X, y)
    np.testing.assert_allclose(model.coef_[0], -model.coef_[1], rtol=1e-9)
    np.testing.assert_allclose(model.intercept_[0], -model.intercept_[1], rtol=1e-9)
    w, b = model.coef_[1] - model.coef_[0], model.intercept_[1] - model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(X), X @ w + b, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-(X @ w + b))), atol=1e-12)


@pytest.mark.parametrize("solver", ["lbfgs", "newton", "gd"])
@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-5])
def test_the_gap_is_an_estimate_and_its_bound_a_bound(tol, solver):
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    best = SoftmaxRegression(0.7).fit(Z, LABELS).solution_.objective
    solution = SoftmaxRegression(0.7, solver=solver, tol=tol).fit(Z, LABELS).solution_
    excess = solution.objective - best
    rounding = 1e-13 * best
    assert -rounding <= excess <= solution.gap_bound + rounding
    assert excess <= 1.5 * tol * best
    assert solution.gap <= tol * solution.objective


def test_infinite_precision_of_one_weight_removes_it():
    """A very large entry of the (K, D) precisions holds that weight, and no other, at zero."""
    alpha = np.ones((3, D))
    alpha[1, 2] = 1e12
    model = SoftmaxRegression(alpha).fit(X, LABELS)
    assert abs(model.coef_[1, 2]) < 1e-9
    assert np.abs(np.delete(model.coef_.ravel(), 5)).min() > 1e-3
