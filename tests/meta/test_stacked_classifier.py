"""Stacks: weights by left-out rows, members of every kind, mixtures' intervals and uncertainty, storage."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import posteriori as po
from posteriori.decision.pooling import LinearPool

X, Y = load_iris(return_X_y=True)
SOFTMAX, TIED = po.SoftmaxRegression(0.1), po.GaussianClassifier("tied", prior="evidence")


@pytest.fixture(scope="module")
def stack():
    return po.StackedClassifier([SOFTMAX, TIED, GaussianNB()]).fit(X, Y)


def test_probabilities_are_the_mixture_of_the_members(stack):
    expected = sum(w * model.predict_proba(X) for w, (_, model) in zip(stack.weights_, stack.estimators_, strict=True))
    np.testing.assert_allclose(stack.predict_proba(X), expected / stack.weights_.sum(), atol=1e-12)
    np.testing.assert_allclose(np.exp(stack.predict_log_proba(X)).sum(axis=1), 1.0)
    assert (stack.predict(X) == Y).mean() > 0.95


def test_weights_are_chosen_by_what_each_member_says_of_left_out_rows(stack):
    models = clone(SOFTMAX).fit(X, Y), clone(TIED).fit(X, Y)
    left = [model.loo(exact="unreliable").log_proba for model in models]
    found = po.StackedClassifier([SOFTMAX, TIED]).fit(X, Y)
    np.testing.assert_allclose(found.weights_, LinearPool().weights(np.array(left), np.eye(3)[Y], np.ones(150)))
    pooled = LinearPool().log_pooled(np.array(left), found.weights_)
    np.testing.assert_allclose(found.loo().log_proba, pooled)
    assert found.gain_.difference == pytest.approx(
        min(found.members_, key=lambda m: m.log_loss).log_loss - found.loo().log_loss - 0.5 / 150
    )


def test_a_member_that_has_learned_its_rows_by_heart_gets_no_weight():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(300, 3))
    b = (A[:, 0] + rng.logistic(size=300) > 0).astype(int)
    forest = RandomForestClassifier(50, random_state=0)
    found = po.StackedClassifier({"linear": po.SoftmaxRegression(1.0), "forest": forest}).fit(A, b)
    assert found.members_[1].judged == "in 5 folds"
    weight = {member.name: member.weight for member in found.members_}
    assert weight["linear"] > 0.6 > weight["forest"]
    in_sample = -np.log(clone(forest).fit(A, b).predict_proba(A)[np.arange(300), b] + 1e-12).mean()
    assert in_sample < found.members_[0].log_loss < found.members_[1].log_loss


def test_members_of_hardly_any_weight_take_no_part():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5000, 2))
    b = (2.0 * A[:, 0] + rng.logistic(size=5000) > 0).astype(int)
    found = po.StackedClassifier({"true": po.SoftmaxRegression(1.0), "none": po.SoftmaxRegression(1e6)}).fit(A, b)
    assert [name for name, _ in found.estimators_] == ["true"]
    assert found.members_[1].weight == 0.0
    np.testing.assert_allclose(found.weights_, [1.0])


def test_the_mixture_s_uncertainty_is_within_members_and_between(stack):
    found = stack.uncertainty(X)
    shares = stack.weights_ / stack.weights_.sum()
    P = [model.predict_proba(X) for _, model in stack.estimators_]
    H = [-(p * np.log(np.maximum(p, 1e-300))).sum(axis=1) for p in P]
    mixed = sum(w * p for w, p in zip(shares, P, strict=True))
    total = -(mixed * np.log(np.maximum(mixed, 1e-300))).sum(axis=1)
    within = sum(
        w * model.uncertainty(X).epistemic
        for w, (_, model) in zip(shares, stack.estimators_, strict=True)
        if hasattr(model, "uncertainty")
    )
    between = total - sum(w * h for w, h in zip(shares, H, strict=True))
    np.testing.assert_allclose(found.total, total, atol=1e-9)
    np.testing.assert_allclose(found.epistemic, within + between, atol=2e-3)
    assert (found.epistemic >= 0).all()


def test_a_product_divides_its_uncertainty_as_the_mixture_does():
    members = {"tied": TIED, "full": po.GaussianClassifier("full", prior="evidence")}
    mixture, product = (
        po.StackedClassifier(members, pool=pool, weights=[0.5, 0.5]).fit(X, Y) for pool in ("linear", "log")
    )
    one, other = mixture.uncertainty(X), product.uncertainty(X)
    P = product.predict_proba(X)
    np.testing.assert_allclose(other.total, -(P * np.log(P)).sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(other.epistemic / other.total, one.epistemic / one.total, atol=1e-9)


def test_the_interval_of_one_member_is_its_own():
    one = po.StackedClassifier({"bayes": po.BayesianSoftmaxRegression(1.0)}).fit(X, Y)
    alone = po.BayesianSoftmaxRegression(1.0).fit(X, Y)
    for level in (0.5, 0.8, 0.95):
        for mine, its in zip(one.predict_interval(X[::10], level), alone.predict_interval(X[::10], level), strict=True):
            np.testing.assert_allclose(mine, its, atol=0.02)


def test_intervals_of_members_without_any_are_points_between_which_the_mixture_lies():
    found = po.StackedClassifier([GaussianNB(), GaussianNB(var_smoothing=0.1)], weights=[0.5, 0.5]).fit(X, Y)
    with pytest.raises(AttributeError, match="has no attribute"):
        _ = found.predict_interval
    mixed = po.StackedClassifier([GaussianNB(), TIED], weights=[0.5, 0.5]).fit(X, Y)
    lower, upper = mixed.predict_interval(X[::10], 0.9)
    P = mixed.estimators_[0][1].predict_proba(X[::10])
    inside = (lower <= P + 1e-9) & (upper >= P - 1e-9)
    assert inside.all()  # half of all mass lies on it


@pytest.mark.parametrize("pool", ["linear", "log"])
@pytest.mark.parametrize("weights", ["loo", "equal", [0.3, 0.7]])
def test_pools_and_weights(pool, weights):
    found = po.StackedClassifier([SOFTMAX, TIED], pool=pool, weights=weights).fit(X, Y)
    np.testing.assert_allclose(found.predict_proba(X).sum(axis=1), 1.0)
    if weights == "equal":
        np.testing.assert_allclose(found.weights_, 0.5)
    if isinstance(weights, list):
        np.testing.assert_allclose(found.weights_, weights)


def test_the_product_is_taken_where_left_out_rows_are_clearly_better_for_it():
    """Two models that each see half of what there is to see: the truth is their product."""
    rng = np.random.default_rng(0)
    b = rng.integers(2, size=2000)
    A = rng.normal(size=(2000, 2)) + 1.5 * b[:, None]
    halves = {
        f"column {d}": make_pipeline(ColumnTransformer([("take", "passthrough", [d])]), po.SoftmaxRegression(0.1))
        for d in range(2)
    }
    found = po.StackedClassifier(halves, pool="auto").fit(A, b)
    assert found.pool_ == "log"
    np.testing.assert_allclose(found.weights_, 1.0, atol=0.15)
    assert found.loo().log_loss < po.StackedClassifier(halves).fit(A, b).loo().log_loss - 0.02
    # where it is better by less than half a standard error, the mixture stays
    wrong = {"true": po.SoftmaxRegression(0.1), "no rows": po.SoftmaxRegression(1e9)}
    assert po.StackedClassifier(wrong, pool="auto").fit(A, b).pool_ == "linear"


def test_copies_are_left_out_together_by_every_member():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 2))
    b = (A[:, 0] + rng.logistic(size=60) > 0).astype(int)
    twice = np.tile(np.arange(60), 2)
    members = {"linear": po.SoftmaxRegression(1.0), "forest": RandomForestClassifier(30, random_state=0)}
    found = po.StackedClassifier(members).fit(A[twice], b[twice])
    assert found.loo().copied
    assert found.loo().n_twins == 120
    forest = found.members_[1]
    assert forest.log_loss > 0.6  # with a twin in the fit it would be about 0.2


def test_a_table_that_names_its_labels_and_weights():
    table = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.array(["x", "y", "z"])[Y], w=1.0 + (Y == 1))
    found = po.StackedClassifier([SOFTMAX, TIED]).fit(table, "kind", sample_weight="w")
    plain = po.StackedClassifier([SOFTMAX, TIED]).fit(X, Y, sample_weight=1.0 + (Y == 1))
    np.testing.assert_allclose(found.predict_proba(table), plain.predict_proba(X))
    assert found.score(table, "kind") == plain.score(X, Y)


def test_pipelines_may_be_members_and_stacks_the_end_of_a_pipeline(tmp_path):
    inner = po.StackedClassifier({"scaled": make_pipeline(StandardScaler(), po.SoftmaxRegression(1.0)), "tied": TIED})
    found = make_pipeline(po.TableEncoder(), inner)
    table = pd.DataFrame({"length": X[:, 2], "size": np.where(X[:, 0] > 5.8, "large", "small"), "kind": Y.astype(str)})
    found.fit(table, "kind")
    po.save(found, tmp_path / "stack")
    again = po.load(tmp_path / "stack")
    np.testing.assert_array_equal(again.predict_proba(table), found.predict_proba(table))
    assert again[-1].members_ == found[-1].members_
    with pytest.raises(ValueError, match="not part of a file"):
        again[-1].loo()


def test_time_that_is_spent_is_said():
    found = po.StackedClassifier([SOFTMAX, TIED, GaussianNB()], max_seconds=1e-9).fit(X, Y)
    assert [name for name, _ in found.estimators_] == ["SoftmaxRegression"]
    assert "were spent before it" in found.members_[1].judged


@pytest.mark.slow
def test_automatic_members():
    found = po.StackedClassifier(random_state=0).fit(X[::2], Y[::2])
    assert {"softmax", "gaussian", "gp"} <= {member.name for member in found.members_}
    assert found.score(X[1::2], Y[1::2]) > 0.93


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"estimators": "all"}, "estimators='all' must be 'auto'"),
        ({"estimators": []}, "models is empty"),
        ({"pool": "geometric"}, "pool='geometric' is unknown"),
        ({"weights": "best"}, "weights='best' is unknown"),
        ({"weights": [1.0]}, "one number for each member"),
        ({"weights": [1.0, -1.0]}, "not negative"),
        ({"max_seconds": -1}, "max_seconds=-1 must be None or a positive number"),
    ],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        po.StackedClassifier(**{"estimators": [SOFTMAX, TIED], **arguments}).fit(X, Y)


@pytest.mark.slow
@parametrize_with_checks([po.StackedClassifier([po.SoftmaxRegression(1.0), po.GaussianClassifier("tied")])])
def test_scikit_learn_s_checks(estimator, check):
    check(estimator)


def test_of_very_many_rows_a_sample_is_judged_by_all_members(monkeypatch):
    monkeypatch.setattr("posteriori.left_out.leaving._MOST_ROWS", 60)
    found = po.StackedClassifier({"linear": SOFTMAX, "tied": TIED, "naive": GaussianNB()}).fit(X, Y)
    assert len(found.loo().rows) == 60
    assert found.loo().log_proba.shape == (60, 3)
    np.testing.assert_array_equal(found.loo().targets, np.eye(3)[Y[found.loo().rows]])
    compared = po.compare({"linear": SOFTMAX, "naive": GaussianNB()}, X, Y)
    np.testing.assert_array_equal(compared.rows, found.loo().rows)
    whole = clone(SOFTMAX).fit(X, Y).loo(exact="unreliable")
    np.testing.assert_allclose(compared.losses["linear"], whole.only(compared.rows).losses)


def test_rows_that_no_model_keeps_are_left_out_all_the_same(monkeypatch):
    """Rows of many bytes are not kept by a model; they are at hand while it is judged."""
    monkeypatch.setattr("posteriori.left_out.rows._MOST_BYTES", 10)
    found = po.StackedClassifier({"linear": SOFTMAX, "tied": TIED}).fit(X, Y)
    assert [member.judged for member in found.members_] == ["by a Newton step from the mode", "in closed form"]
    piped = po.StackedClassifier({"scaled": make_pipeline(StandardScaler(), SOFTMAX)}).fit(X, Y)
    assert piped.members_[0].judged == "in 5 folds"
