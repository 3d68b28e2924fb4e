"""Forests and boosted trees: against scikit-learn's own trees, naive oracles, and what a fit must not depend on."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier

import posteriori as po
from posteriori.exceptions import StorageError
from posteriori.trees.arrays import TreeArrays, joined
from posteriori.trees.bags import bag_keys, times_drawn
from posteriori.trees.boosting import BoostingSettings, Growing, Plan, boost
from posteriori.trees.distinct import class_frequencies, distinct_rows
from posteriori.trees.forest import leaf_shares
from posteriori.trees.ranks import Ranks

IRIS, WINE = load_iris(return_X_y=True), load_wine(return_X_y=True)
FOREST = {"n_trees": 60, "max_features": "sqrt"}


def gaps(X, share=0.1):
    X = X.copy()
    X[np.random.default_rng(0).random(X.shape) < share] = np.nan
    return X


def forest(**params):
    return po.ForestClassifier(**(FOREST | params))


def boosting(**params):
    return po.BoostingClassifier(**({"max_rounds": 30} | params))


BOTH = pytest.mark.parametrize("make", [forest, boosting])


# Trees as arrays


@pytest.mark.parametrize("missing", [False, True])
def test_leaves_are_those_of_scikit_learn(missing):
    X, y = WINE
    X = gaps(X) if missing else X
    single = np.float32(X)
    theirs = [DecisionTreeClassifier(max_features=3, random_state=seed).fit(single, y).tree_ for seed in range(5)]
    ours = joined(
        [
            TreeArrays(
                feature=np.where(tree.children_left < 0, -1, tree.feature).astype(np.int32),
                threshold=tree.threshold,
                left=np.maximum(tree.children_left, 0).astype(np.int32),
                right=np.maximum(tree.children_right, 0).astype(np.int32),
                missing_left=tree.missing_go_to_left.astype(bool),
                roots=np.zeros(1, np.int32),
            )
            for tree in theirs
        ]
    )
    expected = np.array([tree.apply(single) for tree in theirs]) + ours.roots[:, None]
    np.testing.assert_array_equal(ours.leaves(np.float64(single)), expected)
    np.testing.assert_array_equal(ours.leaves(X[:0]), expected[:, :0])


def test_arrays_in_which_a_row_would_go_round_are_refused():
    loop = {
        "feature": [0, -1],
        "threshold": [0.0, 0.0],
        "left": [0, 0],
        "right": [1, 0],
        "missing_left": [False, False],
    }
    kinds = {"feature": np.int32, "left": np.int32, "right": np.int32, "threshold": float, "missing_left": bool}
    with pytest.raises(ValueError, match="a child must come after its parent"):
        TreeArrays(**{name: np.array(loop[name], kind) for name, kind in kinds.items()}, roots=np.zeros(1, np.int32))


def test_thresholds_among_ranks_send_the_same_rows_to_the_left():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=50) * 1e300, rng.integers(3, size=50), np.float32(1e9) + np.arange(50) * 1e-6])
    units = Ranks.of(X)
    ranks = units.ranks(X)
    for d in range(3):
        at = rng.uniform(0, ranks[:, d].max(), 40)
        found = units.thresholds(np.full(40, d), at)
        np.testing.assert_array_equal(X[:, d] <= found[:, None], ranks[:, d] <= at[:, None])
    assert units.thresholds(np.array([1]), np.array([np.inf])) == np.inf


def test_bins_of_many_values_have_as_many_rows():
    X = np.random.default_rng(2).lognormal(size=(1000, 1))
    units = Ranks.of(X, 10)
    ranks = units.ranks(X)[:, 0]
    np.testing.assert_array_equal(np.bincount(ranks.astype(int)), np.full(10, 100))
    found = units.thresholds(np.zeros(9, int), np.arange(9) + 0.5)
    np.testing.assert_array_equal(X <= found, ranks[:, None] <= np.arange(9) + 0.5)
    np.testing.assert_allclose(found, np.sort(X[:, 0]).reshape(10, 100)[:9, -1] / 2 + np.sort(X[:, 0])[100::100] / 2)


# Bags


def test_bags_are_a_bootstrap_of_groups():
    X = np.arange(4000.0)[:, None] // 2
    groups = np.arange(4000) // 2
    keys = bag_keys(X, groups)
    draws = np.array([times_drawn(keys, t, 7) for t in range(50)])
    np.testing.assert_array_equal(draws[:, ::2], draws[:, 1::2])
    share = np.bincount(draws[:, ::2].ravel(), minlength=4)[:4] / draws[:, ::2].size
    np.testing.assert_allclose(share, np.exp(-1.0) / np.array([1, 1, 2, 6]), atol=0.01)
    assert abs(np.corrcoef(draws[0, ::2], draws[1, ::2])[0, 1]) < 0.1
    few = np.array([times_drawn(keys, t, 7, 0.1) for t in range(50)])
    assert few.mean() == pytest.approx(0.1, abs=0.01)
    alone = bag_keys(X, np.arange(4000))  # identical rows that are no copies are drawn on their own
    assert len(np.unique(alone)) == 4000


def test_shares_in_leaves():
    pi = class_frequencies(np.array([3.0, 1.0, 0.0]))
    np.testing.assert_allclose(pi, np.array([10.0, 4.0, 1.0]) / 15.0)
    np.testing.assert_allclose(
        leaf_shares(np.array([[2.0, 0.0, 0.0]]), 0.5, pi), [(np.array([2, 0, 0]) + 0.5 * pi) / 2.5]
    )


# What a fit must not depend on


@BOTH
def test_order_and_units_make_no_difference(make):
    X, y = IRIS
    order = np.random.default_rng(3).permutation(len(y))
    expected = make().fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(make().fit(X[order], y[order]).predict_proba(X), expected)
    Z = X * [1e-3, 4.0, 1e6, 2.0]
    np.testing.assert_allclose(make().fit(Z, y).predict_proba(Z), expected, atol=0.2)
    twice = make().fit(np.exp(X), y).predict_proba(np.exp(X))  # ranks are the same
    np.testing.assert_allclose(twice.sum(axis=1), 1.0, atol=1e-12)


@BOTH
def test_weights_are_repetitions(make):
    X, y = WINE
    times = np.random.default_rng(0).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), times)
    repeated = make().fit(X[rows], y[rows])
    weighted = make().fit(X, y, sample_weight=times)
    np.testing.assert_allclose(repeated.predict_proba(X), weighted.predict_proba(X), rtol=1e-9)


@BOTH
def test_soft_labels_of_one_class_are_labels_and_unseen_classes_keep_their_place(make):
    X, y = IRIS
    Y = np.eye(4)[y]
    soft = make(classes=[0, 1, 2, 9]).fit(X, Y * 2.0)
    assert soft.classes_.tolist() == [0, 1, 2, 9]
    P = soft.predict_proba(X)
    assert (P[:, 3] > 0.0).all()
    assert P[:, 3].max() < 0.02
    assert (P.argmax(axis=1) == y).mean() > 0.95
    blurred = make().fit(X, 0.7 * np.eye(3)[y] + 0.1)
    assert 0.4 < blurred.predict_proba(X)[np.arange(150), y].mean() < 0.9


@BOTH
def test_a_row_is_predicted_the_same_in_any_batch_and_container(make):
    X, y = WINE
    X = gaps(X)
    model = make(n_jobs=2).fit(X, y)
    P = model.predict_proba(X)
    np.testing.assert_allclose(
        np.vstack([model.predict_proba(X[i : i + 1]) for i in range(0, 178, 10)]), P[::10], rtol=1e-12
    )
    many = model.predict_proba(np.tile(X, (40, 1)))
    np.testing.assert_allclose(many[:178], P, rtol=1e-12)
    names = [f"x{d}" for d in range(13)]
    table = pd.DataFrame(X, columns=names).assign(kind=y)
    named = make().fit(table, "kind")
    np.testing.assert_array_equal(named.predict_proba(table), P)
    assert model.decision_function(X).shape == (178, 3)
    two = make().fit(X, y == 1)
    log_p = two.predict_log_proba(X)
    np.testing.assert_allclose(two.decision_function(X), log_p[:, 1] - log_p[:, 0])


@BOTH
def test_few_rows_and_few_classes(make):
    X = np.array([[0.0], [1.0], [2.0]])
    P = make().fit(X, [0, 1, 1]).predict_proba(X)
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    one = make(classes=["a", "b"]).fit(X, ["a"] * 3)
    assert one.predict(X).tolist() == ["a"] * 3
    assert (one.predict_proba(X)[:, 1] > 0.0).all()
    empty = np.column_stack([np.full(3, np.nan), X])  # a column without any value
    assert np.isfinite(make().fit(empty, [0, 1, 1]).predict_proba(empty)).all()


@BOTH
def test_hard_numbers(make):
    X, y = IRIS
    far = X * [1e308 / 8, 1e-310, 1.0, -1e300]
    model = make().fit(far, y, sample_weight=np.full(150, 1e40))
    assert model.score(far, y) > 0.95


# Left out


def test_rows_are_left_out_by_the_trees_that_did_not_see_them():
    """Against an oracle that asks every tree for every row, with the map undone."""
    X, y = IRIS
    model = forest().fit(X, y)
    left = model.loo()
    fitted = model.fitted_
    twins = len(y) - len(np.unique(np.column_stack([X, y]), axis=0))
    assert twins == 1  # one pair of rows, too few to be taken for copies
    keys = bag_keys(X, np.arange(len(y)))
    leaves = fitted.trees.leaves(X)
    away = np.array([times_drawn(keys, t, fitted.seed) == 0 for t in range(60)])
    P = np.einsum("tn,tnk->nk", away, fitted.shares[fitted.pattern[leaves]]) / away.sum(axis=0)[:, None]
    np.testing.assert_allclose(left.log_proba, fitted.mapped(P), atol=1e-12)
    np.testing.assert_allclose(left.reliability, 1.0 / away.sum(axis=0))
    assert left.log_loss == pytest.approx(model.solution_.objective, rel=1e-9)


def test_copies_leave_together_and_are_drawn_together():
    X, y = IRIS
    once = forest().fit(X, y, sample_weight=np.full(150, 2.0)).loo()
    twice = forest().fit(np.repeat(X, 2, axis=0), np.repeat(y, 2)).loo()
    assert twice.copied
    np.testing.assert_allclose(twice.losses[::2][:140], once.losses[:140], rtol=0.5, atol=0.2)
    assert twice.log_loss == pytest.approx(once.log_loss, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: po.ForestClassifier(100), lambda: po.BoostingClassifier(60)])
def test_left_out_rows_are_as_good_as_new_ones(make):
    X, y = load_breast_cancer(return_X_y=True)
    left = make().fit(X, y).loo()
    parts = StratifiedKFold(5, shuffle=True, random_state=0)
    folds = cross_val_predict(make(), X, y, cv=parts, method="predict_proba")
    assert abs(left.log_loss - log_loss(y, folds)) < 2.0 * left.log_loss_error


@pytest.mark.slow
def test_folds_are_kept_by_the_fit_and_dealt_again_after_a_file(tmp_path):
    X, y = WINE
    model = boosting().fit(X, y)
    left = model.loo()
    assert left.method == "in 5 folds"
    assert left.log_loss == pytest.approx(model.solution_.objective, rel=1e-9)
    order = np.random.default_rng(0).permutation(178)
    np.testing.assert_allclose(model.loo(X[order], y[order]).losses, left.losses[order])
    po.save(model, tmp_path / "model")
    assert po.load(tmp_path / "model").loo(X, y).method == "in 10 folds"


def test_twins_that_are_dealt_into_several_folds_are_left_out_by_others():
    rng = np.random.default_rng(0)
    X = rng.integers(3, size=(120, 2)).astype(float)
    y = (rng.random(120) < 0.2 + 0.3 * X[:, 0]).astype(int)
    model = boosting().fit(X, y)
    assert model.loo().method == "in 5 folds"
    assert model.loo(groups="twins").refitted.all()


# Boosting


@pytest.mark.parametrize("K", [2, 3])
def test_logits_are_those_of_scikit_learn(K):
    X, y = gaps(WINE[0]), WINE[1] % K
    distinct = distinct_rows(X, y, np.random.default_rng(0).uniform(0.5, 2.0, len(y)))
    settings = BoostingSettings(20, 0.2, 8, 5, 0.5, 1.0, seed=3)
    fitted, _ = boost(distinct, K, settings)
    ranks = Ranks.of(distinct.X).ranks(distinct.X)
    theirs = HistGradientBoostingClassifier(
        learning_rate=0.2,
        max_iter=fitted.solution.n_iter,
        max_leaf_nodes=8,
        min_samples_leaf=5,
        max_features=0.5,
        l2_regularization=1.0,
        categorical_features=None,
        early_stopping=False,
        random_state=3,
    ).fit(ranks, distinct.labelled.code, sample_weight=distinct.labelled.weight)
    ours = np.exp(log_softmax(fitted.logits(distinct.X), axis=1))
    np.testing.assert_allclose(ours, theirs.predict_proba(ranks), atol=1e-12)


def test_rounds_grown_in_parts_are_those_grown_at_once():
    X, y = WINE
    distinct = distinct_rows(X, y, np.ones(len(y)))
    ranks = Ranks.of(distinct.X).ranks(distinct.X).astype(float)
    settings = BoostingSettings(20, 0.1, 8, 5, 0.5, 1.0, seed=0)
    parts, whole = (Growing(ranks, distinct.labelled, 0.1, settings) for _ in range(2))
    values = np.concatenate([parts.more(4)[1], parts.more(6)[1]])
    np.testing.assert_array_equal(values, whole.more(10)[1])


def test_the_number_of_rounds_is_the_best_of_the_folds():
    X, y = WINE
    solution = po.BoostingClassifier(200).fit(X[:, :4], y).solution_
    assert solution.n_rounds_left_out == int(np.argmin(solution.trace)) + 1
    assert solution.n_iter == int(np.ceil(1.1 * solution.n_rounds_left_out))
    assert solution.converged
    assert len(solution.trace) < 200
    assert not boosting(max_rounds=3).fit(X, y).solution_.converged


def test_work_is_limited():
    settings = BoostingSettings(500, None, 8, 5, 0.5, 1.0, seed=0)
    assert Plan.of(150, 4, 3, settings) == Plan(5, 500, 0.15)
    large = Plan.of(60_000, 784, 10, settings)
    assert large.n_folds == 2
    assert large.max_rounds == 40
    assert large.learning_rate == 0.3
    assert Plan.of(60_000, 784, 10, settings._replace(learning_rate=0.05)).learning_rate == 0.05


# Quality


def test_rules_are_found_and_stated_with_certainty():
    """A table of rules: the plain average of trees is unsure of what it knows."""
    rng = np.random.default_rng(0)
    X = rng.integers(3, size=(900, 6)).astype(float)
    y = ((X[:, 0] == X[:, 1]) | (X[:, 2] > 1)).astype(int)
    model = po.ForestClassifier(100).fit(X[:600], y[:600])
    loss = log_loss(y[600:], model.predict_proba(X[600:]))
    fitted = model.fitted_
    plain = np.mean(fitted.shares[fitted.pattern[fitted.trees.leaves(X[600:])]], axis=0)
    assert model.solution_.slope > 1.5
    assert loss < 0.7 * log_loss(y[600:], plain)
    assert log_loss(y[600:], po.BoostingClassifier().fit(X[:600], y[:600]).predict_proba(X[600:])) < 0.05


# Files and arguments


@BOTH
@pytest.mark.parametrize("missing", [False, True])
def test_round_trip_to_the_bit(make, missing, tmp_path):
    X, y = WINE
    X = gaps(X) if missing else X
    model = make(classes=[0, 1, 2, 5]).fit(X, y)
    po.save(model, tmp_path / "model")
    loaded = po.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_log_proba(X), model.predict_log_proba(X))
    assert loaded.solution_ == model.solution_
    assert loaded.get_params() == model.get_params()


def test_a_forest_from_a_file_leaves_rows_out_as_before(tmp_path):
    X, y = IRIS
    model = forest().fit(X, y)
    po.save(model, tmp_path / "model")
    loaded = po.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.loo(X, y).log_proba, model.loo().log_proba)
    with pytest.raises(ValueError, match="not the rows of the fit"):
        loaded.loo(X[1:], y[1:])


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (forest, "n_trees", 0),
        (forest, "min_leaf", 1.5),
        (forest, "max_features", "half"),
        (forest, "max_features", 1.5),
        (forest, "max_features", 0),
        (boosting, "max_rounds", 0),
        (boosting, "max_leaves", 1),
        (boosting, "learning_rate", 0.0),
        (boosting, "max_features", 3),
        (boosting, "l2", -1.0),
    ],
)
def test_arguments_are_checked(make, name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        make(**{name: value}).fit(*IRIS)


@BOTH
def test_infinite_values_are_refused(make):
    X, y = IRIS
    bad = X.copy()
    bad[7, 2] = np.inf
    with pytest.raises(ValueError, match="infinity, first in column 2, row 7"):
        make().fit(bad, y)
    with pytest.raises(ValueError, match="infinity, first in column 2, row 7"):
        make().fit(X, y).predict(bad)


def test_a_file_whose_trees_go_round_is_refused(tmp_path):
    model = forest(n_trees=3).fit(*IRIS)
    model.fitted_.trees.left[:] = 0
    po.save(model, tmp_path / "model")
    with pytest.raises(StorageError):
        po.load(tmp_path / "model")
