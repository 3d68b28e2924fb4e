"""`GPClassifier` with its defaults, which sees all rows: what it needs, what it says of itself, and what it leaves."""

import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from sklearn.datasets import make_circles
from tests.gp.gp_cases import X, Y, assert_probabilities, three_classes

import posteriori as po
from posteriori.gp import inference, progress
from posteriori.gp.all_rows import FittedMixture, FittedRows
from posteriori.gp.inducing import FittedInducing
from posteriori.kernels import RBF


@pytest.fixture(scope="module")
def model():
    return po.GPClassifier().fit(X, Y)


def test_nothing_is_compiled():
    """Neither a fit nor a prediction imports JAX."""
    code = """
        import sys, numpy as np, posteriori as po
        X = np.random.default_rng(0).normal(size=(30, 2))
        model = po.GPClassifier(max_iter=3).fit(X, X[:, 0] > 0)
        model.predict_interval(X), model.uncertainty(X), model.predict_latent(X), model.kernel_, model.relevances_
        sys.exit("jax" in sys.modules)
    """
    assert (
        subprocess.run([sys.executable, "-W", "ignore", "-c", "\n".join(map(str.strip, code.split("\n")))]).returncode
        == 0
    )


def test_the_record_says_what_was_chosen(model):
    solution = model.solution_
    assert list(solution.considered) == ["smooth", "quadratic"]
    assert solution.kernel in solution.considered
    assert solution.n_inducing == len(np.unique(X, axis=0)) == len(model.inducing_inputs_)
    assert solution.n_learning == 40
    assert solution.settled
    assert type(solution.energy) is float


def test_a_later_kernel_is_taken_for_two_nats_and_no_less(model):
    smooth, quadratic = model.solution_.considered.values()
    assert (model.solution_.kernel == "quadratic") == (quadratic > smooth + 2.0)


def test_few_rows_have_likely_kernels_and_wider_intervals(model):
    assert isinstance(model._fitted, FittedMixture)
    assert len(model._fitted.members) == 8
    alone = po.GPClassifier().fit(X, Y)
    alone._fitted = model._fitted.best
    new = three_classes(60, seed=1)[0]
    widths = [np.subtract(*fit.predict_interval(new)[::-1]).mean() for fit in (model, alone)]
    assert widths[0] > 1.02 * widths[1]


def test_far_from_all_rows_probabilities_are_as_unsure_as_the_uncertainty_says():
    """Likely kernels carry the rule of two rings outwards in different ways, and no left-out row has judged them."""
    rings, ring = make_circles(200, noise=0.1, factor=0.4, random_state=0)
    model = po.GPClassifier().fit(rings, ring)
    assert isinstance(model._fitted, FittedMixture)
    assert not model._fitted.averaged
    far = np.array([[20.0, 0.0], [0.0, 60.0], [-200.0, 200.0]])
    P = model.predict_proba(far)
    np.testing.assert_allclose(-(P * np.log(P)).sum(axis=1), model.uncertainty(far).total, atol=0.02)
    assert P.max() < 0.9
    near = rings[:20] + 0.01
    best = po.GPClassifier().fit(rings, ring)
    best._fitted = model._fitted.best
    np.testing.assert_array_equal(model.predict_proba(near), best.predict_proba(near))
    path = model.predict_proba(np.c_[np.linspace(1.0, 3.0, 400), np.zeros(400)])[:, 0]
    assert np.abs(np.diff(path)).max() < 0.02
    both = model.predict_proba(np.r_[near, far])
    np.testing.assert_allclose(both, np.r_[model.predict_proba(near), P], rtol=1e-12)


def test_a_given_kernel_is_used_as_given():
    """With nothing learned, far from all rows latents have the variance scale^2 k(x, x)."""
    model = po.GPClassifier(RBF(20.0), scale=3.0, max_iter=0).fit(X, Y)
    np.testing.assert_allclose(model.scale_, 3.0, rtol=1e-12)
    np.testing.assert_allclose(model.lengthscales_, 20.0, rtol=1e-12)
    _, covariance = model.predict_latent(np.array([[1e6, 1e6]]))
    np.testing.assert_allclose(covariance[0], 9.0 * np.eye(3), atol=1e-9)
    assert model.solution_.kernel == "as given"
    assert isinstance(model._fitted, FittedRows)
    assert po.GPClassifier(RBF(20.0), max_iter=0).fit(X, Y).scale_.tolist() == [1.0, 1.0, 1.0]


def test_noise_and_latents_share_a_unit():
    """Noise of variance 4 and latents twice as large are the same model."""
    one = po.GPClassifier(RBF(20.0), scale=3.0, noise=1.0, max_iter=0).fit(X, Y)
    four = po.GPClassifier(RBF(20.0), scale=6.0, noise=4.0, max_iter=0).fit(X, Y)
    np.testing.assert_allclose(four.predict_proba(X), one.predict_proba(X), atol=1e-9)
    np.testing.assert_allclose(four.predict_latent(X)[0], 2.0 * one.predict_latent(X)[0], atol=1e-7)
    assert four.log_evidence_ == pytest.approx(one.log_evidence_, abs=1e-7)


def test_weights_are_repetitions():
    """Of three rows, too few to be taken for copies."""
    weights = np.where(np.arange(40) < 3, 3, 1)
    rows = np.repeat(np.arange(40), weights)
    options = {"kernel": RBF(20.0), "scale": 3.0, "max_iter": 0}
    weighted = po.GPClassifier(**options).fit(X, Y, sample_weight=weights)
    repeated = po.GPClassifier(**options).fit(X[rows], Y[rows])
    assert repeated.solution_.n_copies == 0
    assert repeated.log_evidence_ == pytest.approx(weighted.log_evidence_, abs=1e-6)
    np.testing.assert_allclose(repeated.predict_latent(X)[0], weighted.predict_latent(X)[0], atol=1e-6)


@pytest.mark.filterwarnings("ignore::posteriori.ConvergenceWarning")
def test_copies_are_told_of():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(80, 3)), rng.integers(3, size=80)
    twice = np.concatenate([np.arange(80), np.arange(40)])
    model = po.GPClassifier(max_iter=2).fit(rows[twice], labels[twice])
    once = po.GPClassifier(max_iter=2).fit(rows, labels)
    assert model.solution_.n_copies == 40
    assert once.solution_.n_copies == 0
    assert model.log_evidence_ == pytest.approx(once.log_evidence_, rel=0.1)


def test_the_same_seed_gives_the_same_model(model):
    np.testing.assert_array_equal(po.GPClassifier().fit(X, Y).predict_proba(X), model.predict_proba(X))


def test_a_row_is_predicted_alike_in_any_batch(model):
    alone = np.concatenate([model.predict_proba(X[i : i + 1]) for i in range(40)])
    np.testing.assert_allclose(alone, model.predict_proba(X), rtol=0, atol=1e-12)


def test_two_classes_need_one_latent():
    model = po.GPClassifier().fit(X, Y == 0)
    assert_probabilities(model.predict_proba(X), 40, K=2)
    mean, covariance = model.predict_latent(X)
    np.testing.assert_allclose(mean.sum(axis=1), 0.0, atol=1e-9)
    assert (np.linalg.eigvalsh(covariance) >= 0.0).all()


@pytest.mark.parametrize("many", [False, True])
def test_files_hold_all_that_predictions_need(many, tmp_path, monkeypatch):
    if many:
        monkeypatch.setattr(inference, "_MOST_OPERATIONS", 1.0)
    model = po.GPClassifier().fit(X, Y)
    assert isinstance(model._fitted, FittedInducing if many else FittedMixture)
    po.save(model, tmp_path / "gp.model")
    again = po.load(tmp_path / "gp.model")
    for ask in ("predict_proba", "predict_log_proba", "predict_interval", "uncertainty", "predict_latent"):
        for ours, theirs in zip(getattr(again, ask)(X), getattr(model, ask)(X), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert again.solution_ == model.solution_
    assert again.kernel_ == model.kernel_


def test_inducing_inputs_come_near_to_all_rows(monkeypatch):
    whole = po.GPClassifier(calibrate=False).fit(X, Y)
    monkeypatch.setattr(inference, "_MOST_OPERATIONS", 1.0)
    model = po.GPClassifier(calibrate=False).fit(X, Y)
    assert np.abs(model.predict_proba(X) - whole.predict_proba(X)).max() < 0.1
    assert (model.predict(X) == whole.predict(X)).mean() > 0.95


def test_an_interruption_keeps_what_was_learned(monkeypatch):
    told = []

    def interrupting(verbose, max_iter):
        def report(chunk):
            told.append(chunk)
            if len(told) == 3:
                raise KeyboardInterrupt

        return nullcontext(report)

    monkeypatch.setattr(progress, "progress_bar", interrupting)
    model = po.GPClassifier()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert model.solution_.status is po.Status.INTERRUPTED
    assert model.solution_.n_iter == 3
    assert_probabilities(model.predict_proba(X), 40)
    assert model.score(X, Y) > 0.85


@pytest.mark.slow
def test_learning_from_few_rows_is_not_far_from_learning_from_all():
    rows, labels = three_classes(300)
    new, truth = three_classes(400, seed=1)
    few, whole = (po.GPClassifier(n_learning=n).fit(rows, labels) for n in (100, "all"))
    distinct = len(np.unique(np.column_stack([rows, labels]), axis=0))
    assert (few.solution_.n_learning, whole.solution_.n_learning) == (100, distinct)
    losses = [-fit.predict_log_proba(new)[np.arange(400), truth] for fit in (few, whole)]
    apart = losses[0] - losses[1]
    assert abs(apart.mean()) < 3 * apart.std() / 20 + 0.01


class FarApart:
    """A fit whose latents are a thousand apart."""

    def __init__(self, fitted):
        self.node, self.spread, self.needs_jax = fitted.node, 1.0, False

    def predictive(self, X):
        return np.repeat([[[0.0], [1.0], [1000.0]]], len(X), axis=2), np.ones((1, 3, len(X)))


def test_probabilities_have_logarithms_however_small():
    model = po.GPClassifier(RBF(20.0), max_iter=0, mislabelling=0.0).fit(X, Y)
    model._fitted = FarApart(model._fitted)
    log_p = model.predict_log_proba(X[:2])
    # a difference of latents has variance 4, noise included; log Phi(-x) is about -x^2 / 2 - log(x sqrt(2 pi))
    x = np.array([1000.0, 999.0]) / 2.0
    np.testing.assert_allclose(log_p[:, :2], [-0.5 * x**2 - np.log(x * np.sqrt(2 * np.pi))] * 2, rtol=1e-2)
    np.testing.assert_array_equal(log_p[:, 2], 0.0)
