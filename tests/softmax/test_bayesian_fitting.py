"""The mode, its covariance and the evidence, against the objective written out and minimised by scipy."""

import numpy as np
import pytest
import scipy.sparse as sp
import statsmodels.api as sm
from scipy.optimize import minimize
from scipy.special import log_softmax
from tests.slow import quick_first

from posteriori import BayesianSoftmaxRegression, ConvergenceWarning, GaussianPrior, SoftmaxRegression, Status

K, D = 3, 3
WEAK = 1 / 2.5**2


def overlapping(N=150, seed=0, signal=1.0):
    """Columns in units and with origins of their own."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(N, D))
    y = (signal * Z @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)
    return Z * [1.0, 0.3, 4.0] + [0.5, 1.0, -6.0], y


X, Y = overlapping()
WEIGHTS = np.random.default_rng(5).uniform(0.2, 3.0, len(X))


def weak_on_the_mean_row(x_mean, tau=WEAK):
    """Precision of N(0, 1 / tau) on w . mean(x) + b."""
    u = np.append(x_mean, 1.0)
    return tau * np.outer(u, u)


def precision(values, x_mean, tau=WEAK):
    """Of all parameters, class by class, from those of the weights, a number or (K, D), or (K D, K D)."""
    R = np.kron(np.eye(K), weak_on_the_mean_row(x_mean, tau)).reshape(K, D + 1, K, D + 1)
    values = np.asarray(values, dtype=float)
    if values.shape != (K * D, K * D):
        values = np.diag(np.broadcast_to(values, (K, D)).ravel())
    R[:, :D, :, :D] += values.reshape(K, D, K, D)
    return R.reshape(K * (D + 1), -1)


def optimum(X, y, R, mean=0.0, weights=1.0):
    """The minimiser of J, the Hessian there and Laplace's log evidence."""
    X1 = np.column_stack([X, np.ones(len(X))])
    targets = y if np.ndim(y) == 2 else np.eye(len(R) // X1.shape[1])[y]
    n_classes = targets.shape[1]
    c = np.broadcast_to(weights, len(X))
    m = np.broadcast_to(mean, (n_classes, X1.shape[1])).ravel()

    def J(v):
        log_p = log_softmax(X1 @ v.reshape(n_classes, -1).T, axis=1)
        return -(c[:, None] * targets * log_p).sum() + 0.5 * (v - m) @ R @ (v - m)

    def gradient(v):
        P = np.exp(log_softmax(X1 @ v.reshape(n_classes, -1).T, axis=1))
        return ((c[:, None] * (P - targets)).T @ X1).ravel() + R @ (v - m)

    def hessian(v):
        P = np.exp(log_softmax(X1 @ v.reshape(n_classes, -1).T, axis=1))
        curvature = np.einsum("nk,kl->nkl", P, np.eye(n_classes)) - np.einsum("nk,nl->nkl", P, P)
        return np.einsum("n,nkl,nd,ne->kdle", c, curvature, X1, X1, optimize=True).reshape(len(R), -1) + R

    # in coordinates where the curvature is one, so that every method would do
    root = np.linalg.cholesky(np.linalg.inv(hessian(m)))
    found = minimize(
        lambda t: J(m + root @ t),
        np.zeros(len(R)),
        jac=lambda t: root.T @ gradient(m + root @ t),
        hess=lambda t: root.T @ hessian(m + root @ t) @ root,
        method="trust-exact",
        options={"gtol": 1e-11},
    )
    v = m + root @ found.x
    H = hessian(v)
    evidence = -J(v) + 0.5 * np.linalg.slogdet(R)[1] - 0.5 * np.linalg.slogdet(H)[1]
    return v.reshape(n_classes, -1), H, evidence


def parameters(model):
    return np.column_stack([model.coef_, model.intercept_])


def laplace(prior=1.0, **options):
    return BayesianSoftmaxRegression(prior, approximation="laplace", **options)


# Number priors


@pytest.mark.parametrize("alpha", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("weights", [1.0, WEIGHTS], ids=["plain", "weighted"])
def test_mode_covariance_and_evidence_of_the_written_objective(alpha, weights):
    """Precision alpha on raw weights, N(0, 2.5^2) on each class's logit at the weighted mean row."""
    x_mean = np.average(X, axis=0, weights=np.broadcast_to(weights, len(X)))
    theta, H, evidence = optimum(X, Y, precision(alpha, x_mean), weights=weights)
    model = laplace(alpha).fit(X, Y, weights)
    np.testing.assert_allclose(parameters(model), theta, atol=1e-6)
    np.testing.assert_allclose(model.covariance_, np.linalg.inv(H), rtol=1e-6, atol=1e-8)
    assert model.log_evidence_ == pytest.approx(evidence, abs=1e-6)
    assert model.solution_.status is Status.CONVERGED
    assert model.prior_.precision == pytest.approx(alpha)
    assert model.prior_.intercept_precision == pytest.approx(WEAK)


def test_covariance_is_the_inverse_of_finite_differences():
    model = laplace().fit(X, Y)
    R = precision(1.0, X.mean(axis=0))
    X1 = np.column_stack([X, np.ones(len(X))])

    def gradient(v):
        P = np.exp(log_softmax(X1 @ v.reshape(K, -1).T, axis=1))
        return ((P - np.eye(K)[Y]).T @ X1).ravel() + R @ v

    v, h = parameters(model).ravel(), 1e-5
    H = np.array([(gradient(v + h * e) - gradient(v - h * e)) / (2 * h) for e in np.eye(len(v))])
    np.testing.assert_allclose(model.covariance_ @ H, np.eye(len(v)), atol=1e-6)


def test_objective_of_the_solution():
    theta, _, _ = optimum(X, Y, precision(1.0, X.mean(axis=0)))
    log_p = log_softmax(X @ theta[:, :D].T + theta[:, D], axis=1)
    at_mean = theta[:, :D] @ X.mean(axis=0) + theta[:, D]
    J = -log_p[np.arange(len(Y)), Y].sum() + 0.5 * (theta[:, :D] ** 2).sum() + 0.5 * WEAK * (at_mean**2).sum()
    assert laplace().fit(X, Y).solution_.objective == pytest.approx(J, rel=1e-10)


def test_without_an_intercept():
    """The same precision on every weight and nothing else: SoftmaxRegression's objective."""
    model, point = laplace(2.0, fit_intercept=False).fit(X, Y), SoftmaxRegression(2.0, fit_intercept=False).fit(X, Y)
    np.testing.assert_allclose(model.coef_, point.coef_, atol=1e-6)
    assert not model.intercept_.any()
    P = point.predict_proba(X)
    curvature = np.einsum("nk,kl->nkl", P, np.eye(K)) - np.einsum("nk,nl->nkl", P, P)
    H = np.einsum("nkl,nd,ne->kdle", curvature, X, X).reshape(K * D, -1) + 2.0 * np.eye(K * D)
    np.testing.assert_allclose(model.covariance_, np.linalg.inv(H), rtol=1e-6, atol=1e-9)
    J = -np.log(P[np.arange(len(Y)), Y]).sum() + (point.coef_**2).sum()
    evidence = -J + 0.5 * K * D * np.log(2.0) - 0.5 * np.linalg.slogdet(H)[1]
    assert model.log_evidence_ == pytest.approx(evidence, abs=1e-6)


def test_two_classes():
    y = (Y > 0).astype(int)
    u = np.append(X.mean(axis=0), 1.0)
    R = np.kron(np.eye(2), np.diag([0.7, 0.7, 0.7, 0.0]) + WEAK * np.outer(u, u))
    theta, H, evidence = optimum(X, y, R)
    model = laplace(0.7).fit(X, y)
    np.testing.assert_allclose(parameters(model), theta, atol=1e-6)
    np.testing.assert_allclose(model.covariance_, np.linalg.inv(H), rtol=1e-6, atol=1e-8)
    assert model.log_evidence_ == pytest.approx(evidence, abs=1e-6)
    np.testing.assert_allclose(model.coef_[0], -model.coef_[1], atol=1e-9)


# Priors of every form, through every solver

rng = np.random.default_rng(3)


def spd(n):
    root = rng.normal(size=(n, n))
    return root @ root.T + np.eye(n)


MEAN, MEAN_ROW, SD = rng.normal(size=(K, D + 1)), X.mean(axis=0), X.std(axis=0)
PER_COEFFICIENT, WEIGHTS_ONLY, ALL, A, G, G1 = rng.uniform(0.3, 3, (K, D)), spd(9), spd(12), spd(3), spd(3), spd(4)
TO_STANDARD = np.zeros((D + 1, D + 1))  # standardised parameters from those for raw columns
TO_STANDARD[:D, :D], TO_STANDARD[D] = np.diag(SD), np.append(MEAN_ROW, 1.0)
AS_KRON = np.kron(np.eye(K), TO_STANDARD)
AT_ZERO = np.column_stack([MEAN[:, :D], -MEAN[:, :D] @ MEAN_ROW])  # the mean row's logit is expected at zero
PRIORS = {
    "per coefficient": (GaussianPrior(precision=PER_COEFFICIENT), precision(PER_COEFFICIENT, MEAN_ROW), 0.0),
    "strong intercept": (GaussianPrior(intercept_precision=9.0), precision(1.0, MEAN_ROW, 9.0), 0.0),
    "matrix of weights": (GaussianPrior(precision=WEIGHTS_ONLY), precision(WEIGHTS_ONLY, MEAN_ROW), 0.0),
    "matrix": (GaussianPrior(precision=ALL), ALL, 0.0),
    "Kronecker of weights": (GaussianPrior(precision=(A, G)), precision(np.kron(A, G), MEAN_ROW), 0.0),
    "Kronecker": (GaussianPrior(precision=(A, G1)), np.kron(A, G1), 0.0),
    "mean": (GaussianPrior(MEAN[:, :D], 2.0), precision(2.0, MEAN_ROW), AT_ZERO),
    "mean of all": (GaussianPrior(MEAN, 2.0), precision(2.0, MEAN_ROW), MEAN),
    "mean and matrix": (GaussianPrior(MEAN, ALL), ALL, MEAN),
    "mean and Kronecker": (GaussianPrior(MEAN, (A, G1)), np.kron(A, G1), MEAN),
    "one number as mean": (
        GaussianPrior(0.5, 2.0),
        precision(2.0, MEAN_ROW),
        np.tile(np.append(np.full(D, 0.5), -0.5 * MEAN_ROW.sum()), (K, 1)),
    ),
    "autoscaled": (GaussianPrior(precision=2.0, autoscale=True), precision(2.0 * SD**2, MEAN_ROW), 0.0),
    "autoscaled matrix": (GaussianPrior(precision=ALL, autoscale=True), AS_KRON.T @ ALL @ AS_KRON, 0.0),
    "autoscaled Kronecker": (
        GaussianPrior(precision=(A, G1), autoscale=True),
        np.kron(A, TO_STANDARD.T @ G1 @ TO_STANDARD),
        0.0,
    ),
    "autoscaled mean": (
        GaussianPrior(MEAN, 2.0, autoscale=True),
        precision(2.0 * SD**2, MEAN_ROW),
        np.linalg.solve(TO_STANDARD, MEAN.T).T,
    ),
}


@pytest.mark.parametrize("convert", quick_first([np.asarray, sp.csr_array]), ids=["dense", "sparse"])
@pytest.mark.parametrize("solver", quick_first(["auto", "newton", "lbfgs"]))
@pytest.mark.parametrize(("prior", "R", "mean"), PRIORS.values(), ids=PRIORS.keys())
def test_priors_of_every_form_with_every_solver(prior, R, mean, solver, convert):
    theta, H, evidence = optimum(X, Y, R, mean)
    model = laplace(prior, solver=solver, tol=1e-13).fit(convert(X), Y)
    np.testing.assert_allclose(parameters(model), theta, atol=1e-5 if solver == "lbfgs" else 1e-6)
    np.testing.assert_allclose(model.covariance_, np.linalg.inv(H), rtol=1e-4, atol=1e-6)
    assert model.log_evidence_ == pytest.approx(evidence, abs=1e-6)


CENTRED = (X - MEAN_ROW) / SD
FOR_GRADIENT_DESCENT = {
    "number": (1.0, precision(1.0, np.zeros(D)), 0.0),
    "per coefficient": (GaussianPrior(precision=PER_COEFFICIENT), precision(PER_COEFFICIENT, np.zeros(D)), 0.0),
    "matrix": (GaussianPrior(MEAN, ALL), ALL, MEAN),
    "Kronecker": (GaussianPrior(MEAN, (A, G1)), np.kron(A, G1), MEAN),
}


@pytest.mark.parametrize(("prior", "R", "mean"), FOR_GRADIENT_DESCENT.values(), ids=FOR_GRADIENT_DESCENT.keys())
def test_priors_of_every_form_with_gradient_descent(prior, R, mean):
    """On columns that need no care, as it takes thousands of steps on others."""
    theta, _, evidence = optimum(CENTRED, Y, R, mean)
    model = laplace(prior, solver="gd", tol=1e-12, max_iter=10_000).fit(CENTRED, Y)
    np.testing.assert_allclose(parameters(model), theta, atol=1e-4)
    assert model.log_evidence_ == pytest.approx(evidence, abs=1e-4)


@pytest.mark.parametrize(("prior", "R", "mean"), PRIORS.values(), ids=PRIORS.keys())
def test_prior_in_data_units_gives_the_same_fit(prior, R, mean):
    """prior_ states the whole prior: precision, mean and intercepts."""
    first = laplace(prior).fit(X, Y)
    assert not first.prior_.autoscale
    second = laplace(first.prior_).fit(X, Y)
    np.testing.assert_allclose(parameters(second), parameters(first), atol=1e-7)
    assert second.log_evidence_ == pytest.approx(first.log_evidence_, abs=1e-7)
    np.testing.assert_allclose(second.predict_proba(X), first.predict_proba(X), atol=1e-8)


# Against statsmodels


def test_standard_errors_approach_maximum_likelihood_as_the_prior_weakens():
    X, y = overlapping(N=600, seed=2)
    mle = sm.MNLogit(y, np.column_stack([X, np.ones(len(X))])).fit(disp=0, method="newton", maxiter=100)
    errors = []
    for alpha in (1e-1, 1e-3, 1e-5, 1e-7):
        table = laplace(GaussianPrior(precision=alpha, intercept_precision=alpha)).fit(X, y).summary("reference")
        assert table["class"].tolist() == [1] * 4 + [2] * 4
        coefficients = np.abs(table["mean"] / mle.params.T.ravel() - 1).max()
        errors.append(max(coefficients, np.abs(table["sd"] / mle.bse.T.ravel() - 1).max()))
    assert (np.diff(errors) < 0).all()
    assert errors[0] > 1e-3
    assert errors[-1] < 1e-5


# Two ways to say the same thing

FORMS = {
    "number": {"prior": 1.0, "approximation": "laplace"},
    "evidence": {"prior": "evidence", "approximation": "laplace"},
    "ard": {"prior": "ard", "approximation": "laplace"},
    "jeffreys": {"prior": "jeffreys"},
    "variational": {"prior": 1.0, "approximation": "variational"},
    "kronecker": {"prior": 1.0, "posterior": "kronecker"},
    "diagonal": {"prior": 1.0, "posterior": "diagonal"},
    "auto": {},
}


def assert_same(model, other, rows=X, tol=1e-6):
    np.testing.assert_allclose(model.coef_, other.coef_, atol=tol)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=10 * tol)
    np.testing.assert_allclose(model.predict_proba(rows), other.predict_proba(rows), atol=tol)
    np.testing.assert_allclose(model.covariance_, other.covariance_, rtol=1e-4, atol=tol)
    if model.log_evidence_ is not None:
        assert model.log_evidence_ == pytest.approx(other.log_evidence_, abs=1e-5)


@pytest.mark.parametrize("options", FORMS.values(), ids=FORMS.keys())
def test_weight_is_repetition_and_zero_is_absence(options):
    weights = np.random.default_rng(1).integers(0, 4, len(X))
    moved = np.where(weights[:, None] > 0, X, 1e3)
    weighted = BayesianSoftmaxRegression(**options).fit(moved, Y, weights)
    repeated = BayesianSoftmaxRegression(**options).fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights))
    assert_same(weighted, repeated)
    assert weighted.solution_.approximation == repeated.solution_.approximation


@pytest.mark.parametrize("options", list(FORMS.values())[:-1], ids=list(FORMS)[:-1])
def test_soft_labels_are_weighted_hard_ones(options):
    """Not "auto": leaving out one row of either is not the same."""
    soft = np.random.default_rng(2).dirichlet(np.full(K, 0.4), len(X))
    hard = BayesianSoftmaxRegression(**options).fit(
        np.repeat(X, K, axis=0), np.tile(np.arange(K), len(X)), soft.ravel()
    )
    assert_same(BayesianSoftmaxRegression(**options).fit(X, soft), hard)


def test_soft_labels_of_ones_and_zeros_are_labels():
    assert_same(BayesianSoftmaxRegression().fit(X, np.eye(K)[Y]), BayesianSoftmaxRegression().fit(X, Y))


def test_class_weight_is_sample_weight():
    factors = np.array([0.5, 2.0, 3.0])
    by_class = laplace(class_weight=dict(enumerate(factors))).fit(X, Y)
    assert_same(by_class, laplace().fit(X, Y, factors[Y]))


@pytest.mark.parametrize("options", FORMS.values(), ids=FORMS.keys())
def test_order_of_rows_and_columns_does_not_matter(options):
    rows, columns = np.random.default_rng(4).permutation(len(X)), [2, 0, 1]
    model = BayesianSoftmaxRegression(**options).fit(X, Y)
    permuted = BayesianSoftmaxRegression(**options).fit(X[rows][:, columns], Y[rows])
    np.testing.assert_allclose(permuted.coef_, model.coef_[:, columns], atol=1e-6)
    np.testing.assert_allclose(permuted.predict_proba(X[:, columns]), model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("options", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("order", [[2, 0, 1], [1, 0, 2]])
def test_label_permutation(options, order):
    """Nodes are laid out from the last class: predictions agree to their accuracy, modes to that of the solver."""
    order = np.array(order)
    model = BayesianSoftmaxRegression(**options).fit(X, Y)
    permuted = BayesianSoftmaxRegression(**options).fit(X, order[Y])
    variational = model.solution_.approximation == "variational"
    np.testing.assert_allclose(permuted.coef_[order], model.coef_, atol=1e-6)
    np.testing.assert_allclose(permuted.predict_proba(X)[:, order], model.predict_proba(X), atol=1e-3)
    where = (np.arange(K * (D + 1)).reshape(K, -1)[order]).ravel()
    np.testing.assert_allclose(
        permuted.covariance_[np.ix_(where, where)], model.covariance_, rtol=1e-2 if variational else 1e-5, atol=1e-6
    )
    if model.log_evidence_ is not None:
        assert permuted.log_evidence_ == pytest.approx(model.log_evidence_, abs=0.02 if variational else 1e-6)


@pytest.mark.parametrize("options", FORMS.values(), ids=FORMS.keys())
def test_refits_are_the_same_to_the_bit(options):
    first, second = (BayesianSoftmaxRegression(**options).fit(X, Y) for _ in range(2))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    np.testing.assert_array_equal(first.covariance_, second.covariance_)
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert first.log_evidence_ == second.log_evidence_
    again = second.fit(X, Y)
    np.testing.assert_array_equal(first.coef_, again.coef_)


def test_threads_do_not_change_a_bit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 6))
    y = (X @ rng.normal(size=(6, 4)) + rng.gumbel(size=(9000, 4))).argmax(axis=1)
    one, two = (BayesianSoftmaxRegression(n_jobs=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    assert one.log_evidence_ == two.log_evidence_


def test_an_unfinished_fit_warns():
    with pytest.warns(ConvergenceWarning, match="Not converged .*after 1 iterations"):
        model = laplace(solver="gd", max_iter=1).fit(X, Y)
    assert model.solution_.status is Status.ITERATION_LIMIT
