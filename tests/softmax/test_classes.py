"""Independent classes and independent parameters: families whose bound is one, and whose best member is stationary."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import softmax
from tests.softmax.test_variational import optimum

from posteriori import BayesianSoftmaxRegression, GaussianPrior
from posteriori.maths.integrals import normal_nodes
from posteriori.rows.memory import MemoryBlocks
from posteriori.softmax.classes import ClassFamily, averaged_classes
from posteriori.softmax.diagonal import DiagonalFamily
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.precision import DiagonalPrecision
from posteriori.softmax.structures import structure_for
from posteriori.softmax.variational import climb

K, D, N = 4, 3, 80


def rows(seed=0, size=2.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) + 0.5
    return X, (size * X @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)


def objective(centre=None, form=np.asarray):
    X, y = rows()
    blocks = MemoryBlocks(form(X), y, None, K)
    values = np.full((K, D + 1), 0.5)
    values[:, -1] = 0.16
    return SoftmaxObjective(blocks, ObservedMoments.of(blocks, K), DiagonalPrecision(values, centre))


CENTRE = np.append(rows()[0].mean(axis=0), 1.0)
FAMILIES = pytest.mark.parametrize("family", [ClassFamily, DiagonalFamily])
CENTRES = pytest.mark.parametrize("centre", [None, CENTRE], ids=["intercept", "mean row"])


def test_averages_of_independent_logits():
    rng = np.random.default_rng(1)
    F, v = rng.normal(size=(K, 5)), rng.uniform(0.1, 2.0, size=(K, 5))
    drawn = F[:, :, None] + np.sqrt(v)[:, :, None] * rng.normal(size=(K, 5, 200_000))
    P = softmax(drawn, axis=0)
    log_partition, mean, second = averaged_classes(F, v, normal_nodes(K, 2048))
    np.testing.assert_allclose(log_partition, np.log(np.exp(drawn).sum(axis=0)).mean(axis=1), atol=0.01)
    np.testing.assert_allclose(mean, P.mean(axis=2), atol=0.003)
    np.testing.assert_allclose(second, (P**2).mean(axis=2), atol=0.003)


@CENTRES
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_at_the_mode_they_are_blocks_and_diagonal_of_the_hessian(centre, form):
    problem = objective(centre, form)
    theta = optimum(problem)
    H = problem.hessian(theta).reshape(K, D + 1, K, D + 1)
    blocks = H[np.arange(K), :, np.arange(K)]
    by_class = ClassFamily(problem)
    made = by_class.gaussian(theta, by_class.at_mode(theta))
    np.testing.assert_allclose(made.factors @ made.factors.transpose(0, 2, 1), blocks, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made.covariances, np.linalg.inv(blocks), rtol=1e-7, atol=1e-10)
    family = DiagonalFamily(problem)
    diagonal = family.gaussian(theta, family.at_mode(theta)).precisions
    C = np.eye(D + 1)
    if centre is not None:
        C[-1] = centre
    inverse = np.linalg.inv(C)
    in_centred = np.einsum("de,kef,fg->kdg", inverse.T, blocks, inverse)
    np.testing.assert_allclose(diagonal, in_centred.diagonal(axis1=1, axis2=2), rtol=1e-8)


@FAMILIES
@CENTRES
def test_the_bound_lies_below_that_of_a_full_gaussian_and_above_its_neighbours(family, centre):
    problem = objective(centre)
    theta = optimum(problem)
    made = family(problem, 512)
    best = climb(made, theta, made.at_mode(theta))
    assert best.converged
    full = BayesianSoftmaxRegression  # the evidence itself, by importance weights over a full posterior
    X, y = rows()
    prior = GaussianPrior(precision=0.5, intercept_precision=0.16) if centre is not None else None
    if prior is not None:
        evidence = full(prior, approximation="importance", n_draws=4000).fit(X, y).log_evidence_
        assert best.bound < evidence + 0.1
        assert best.bound > evidence - 25.0
    at_mode = made.gaussian(theta, made.at_mode(theta))

    def bound(posterior):
        return -made.averages(posterior).value - made.divergence(posterior)

    assert best.bound == pytest.approx(bound(best.source), abs=1e-9)
    assert bound(best.posterior) > bound(at_mode) - 0.05
    curvature = made.averages(best.posterior).curvature
    for factor in (0.6, 1.6):
        assert bound(made.gaussian(best.posterior.mean, factor * curvature)) < best.bound + 0.05


@FAMILIES
def test_the_divergence_is_that_of_gaussians(family):
    problem = objective()
    theta = optimum(problem)
    made = family(problem)
    posterior = made.gaussian(theta, made.at_mode(theta))
    S, R = posterior.covariance(), problem.prior.matrix(np.eye(K))
    trace, sizes = np.vdot(R, S), np.linalg.slogdet(S)[1] + np.linalg.slogdet(R)[1]
    assert made.divergence(posterior) == pytest.approx(0.5 * (trace - len(R) - sizes), rel=1e-9)


def test_a_posterior_of_classes_answers_as_its_covariance():
    problem = objective()
    theta = optimum(problem)
    family = ClassFamily(problem)
    posterior = family.gaussian(theta, family.at_mode(theta))
    X = rows(1)[0][:6]
    Z = np.column_stack([X, np.ones(6)])
    S = posterior.covariance().reshape(K, D + 1, K, D + 1)
    V = np.einsum("nd,kdle,ne->nkl", Z, S, Z)
    np.testing.assert_allclose(posterior.latent_covariance(X), V, atol=1e-12)
    np.testing.assert_allclose(posterior.latent_variances(Z), V.diagonal(axis1=1, axis2=2).T, atol=1e-12)
    np.testing.assert_allclose(posterior.variances().ravel(), posterior.covariance().diagonal())
    np.testing.assert_allclose(posterior.precision() @ posterior.covariance(), np.eye(K * (D + 1)), atol=1e-9)
    assert posterior.log_det == pytest.approx(-np.linalg.slogdet(posterior.covariance())[1], rel=1e-9)
    R = np.random.default_rng(0).normal(size=theta.shape)
    np.testing.assert_allclose(posterior.solve(R).ravel(), posterior.covariance() @ R.ravel(), atol=1e-12)
    slopes = np.random.default_rng(1).normal(size=(3, K, D + 1))
    expected = np.einsum("mkd,kdle,mle->m", slopes, S, slopes)
    np.testing.assert_allclose(posterior.contrast_variances(slopes), expected, atol=1e-12)
    drawn = posterior.draws(50_000, np.random.default_rng(2)).reshape(50_000, -1)
    np.testing.assert_allclose(np.cov(drawn.T), posterior.covariance(), atol=0.05)


@pytest.mark.parametrize("structure", ["classes", "diagonal"])
def test_a_variational_posterior_of_a_structure(structure):
    X, y = rows()
    options = {"posterior": structure, "prior": GaussianPrior(precision=1.0, autoscale=True)}
    model = BayesianSoftmaxRegression(approximation="variational", **options).fit(X, y)
    rough = BayesianSoftmaxRegression(approximation="laplace", **options).fit(X, y)
    assert model.solution_.structure == structure
    assert model.solution_.approximation == "variational"
    assert model.log_evidence_ >= max(model.solution_.bound, rough.log_evidence_) - 1e-9
    np.testing.assert_allclose(model.coef_, rough.coef_, atol=1e-9)  # the mode
    P = model.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(model.sample_proba(X, 3000).mean(axis=0), P, atol=0.03)


class Rows:
    """As many rows as are said."""

    def __init__(self, n_rows):
        self.n_rows = n_rows


@pytest.mark.parametrize(
    ("n_rows", "K", "width", "structure"),
    [
        (500, 3, 20, "full"),
        (1_600, 10, 65, "full"),
        (1_600, 10, 217, "classes"),
        (540, 18, 133, "classes"),
        (3_000, 2, 2_001, "full"),
        (60_000, 10, 785, "kronecker"),
        (7_000, 3, 6_001, "diagonal"),
    ],
)
def test_the_structure_is_what_takes_seconds(n_rows, K, width, structure):
    found, reason = structure_for("auto", Rows(n_rows), K, width)
    assert found == structure
    assert reason.startswith(f"{K * width} parameters")
    assert ("a full one would take about" in reason) == (structure != "full")


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        ValueError, match=r"posterior='classes' with 3 classes and 9001 .* GiB.*use posterior='diagonal'"
    ):
        structure_for("classes", Rows(100), 3, 9001)
