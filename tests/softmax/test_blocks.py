"""One precision for each block of columns: identities with one precision and with one per column, units, tables."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.pipeline import Pipeline

import posteriori as po
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.coordinates import CommonUnits, StepUnits
from posteriori.softmax.priors import GaussianPrior
from posteriori.tables.encoder import TableEncoder

N, D, K = 400, 5, 3


def numbers(seed=0, n=N):
    """Two columns that matter and three that do not, in different units."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    y = (1.5 * X[:, :2] @ rng.normal(size=(2, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)
    return X * [1.0, 30.0, 0.01, 5.0, 2.0] + [0.0, 100.0, 0.0, -3.0, 1.0], y


def shops(n=1500, levels=40, effect=0.8, seed=0):
    """A table with three numbers and two categories of many levels, of which the second has no effect."""
    rng = np.random.default_rng(seed)
    X, effects = rng.normal(size=(n, 3)), effect * rng.normal(size=(levels, K))
    share = 1.0 / np.arange(1, levels + 1)
    shop = rng.choice(levels, n, p=share / share.sum())
    y = (X @ rng.normal(size=(3, K)) + effects[shop] + rng.gumbel(size=(n, K))).argmax(axis=1)
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    table["shop"] = [f"s{s:02d}" for s in shop]
    table["street"] = [f"t{s:02d}" for s in rng.integers(0, levels, n)]
    return table.assign(kind=np.array(["x", "y", "z"])[y])


TABLE = shops()
ENCODER = TableEncoder(min_frequency=1).fit(TABLE, "kind")
FEATURES = ENCODER.transform(TABLE.drop(columns="kind"))
LABELS = TABLE["kind"].to_numpy()


def laplace(prior="blocks", **options):
    return BayesianSoftmaxRegression(prior, approximation="laplace", **options)


def blocked(labels, **options):
    return GaussianPrior(blocks=labels, **{"autoscale": True} | options)


@pytest.fixture(scope="module")
def fitted():
    return laplace().fit(FEATURES, LABELS)


# Identities


@pytest.mark.parametrize("posterior", ["full", "kronecker", "diagonal"])
@pytest.mark.parametrize(("labels", "prior"), [(range(D), "ard"), (["all"] * D, "evidence")])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_block_for_each_column_is_ard_and_one_for_all_is_evidence(posterior, labels, prior, intercept):
    X, y = numbers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", po.ConvergenceWarning)
        here = laplace(blocked(labels), posterior=posterior, fit_intercept=intercept).fit(X, y)
        there = laplace(prior, posterior=posterior, fit_intercept=intercept).fit(X, y)
    np.testing.assert_allclose(np.log(here.prior_.precision), np.log(there.prior_.precision), atol=1e-6)
    assert here.log_evidence_ == pytest.approx(there.log_evidence_, abs=1e-6)
    np.testing.assert_allclose(here.predict_proba(X), there.predict_proba(X), atol=1e-8)


def test_no_other_precisions_have_more_evidence(fitted):
    chosen, labels = fitted.block_precisions_, ENCODER.get_feature_blocks_out()
    assert fitted.solution_.evidence_converged
    for label in ("(numbers)", "shop"):
        for factor in (0.5, 2.0):
            moved = chosen | {label: factor * chosen[label]}
            weak = fitted.prior_.intercept_precision
            other = laplace(blocked(labels, precision=moved, intercept_precision=weak)).fit(FEATURES, LABELS)
            assert other.log_evidence_ < fitted.log_evidence_ + 1e-3


@pytest.mark.parametrize("prior", ["blocks", blocked(ENCODER.get_feature_blocks_out(), autoscale=False)])
def test_stated_precisions_give_the_same_fit(prior):
    """What was found, stated block by block or coefficient by coefficient, is the same prior."""
    model = laplace(prior).fit(FEATURES, LABELS)
    labels, weak = ENCODER.get_feature_blocks_out(), model.prior_.intercept_precision
    stated = blocked(
        labels, precision=model.block_precisions_, intercept_precision=weak, autoscale=isinstance(prior, str)
    )
    for again in (laplace(stated), laplace(model.prior_)):
        again.fit(FEATURES, LABELS)
        np.testing.assert_allclose(again.prior_.precision, model.prior_.precision, rtol=1e-9)
        np.testing.assert_allclose(again.coef_, model.coef_, atol=2e-4)
        assert again.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-3)
        assert not hasattr(again, "block_precisions_")


def test_columns_in_another_order(fitted):
    order = np.random.default_rng(1).permutation(FEATURES.shape[1])
    other = laplace().fit(FEATURES.iloc[:, order], LABELS)
    assert other.block_precisions_.keys() == fitted.block_precisions_.keys()
    for label in ("(numbers)", "shop"):
        assert other.block_precisions_[label] == pytest.approx(fitted.block_precisions_[label], rel=1e-3)
    np.testing.assert_allclose(other.coef_, fitted.coef_[:, order], atol=1e-4)
    np.testing.assert_allclose(other.predict_proba(FEATURES.iloc[:, order]), fitted.predict_proba(FEATURES), atol=1e-5)


def test_levels_with_other_names(fitted):
    """Names decide on the order of the levels, and the order on nothing."""
    renamed = TABLE.assign(shop=TABLE["shop"].map({s: f"q{hash(s) % 9973}{s}" for s in TABLE["shop"].unique()}))
    model = Pipeline([("encode", TableEncoder(min_frequency=1)), ("fit", laplace())]).fit(renamed, "kind")
    np.testing.assert_allclose(model.predict_proba(renamed), fitted.predict_proba(FEATURES), atol=1e-5)


# What the strengths say


def test_strengths_follow_the_effects(fitted):
    found = fitted.block_precisions_
    assert list(found) == ["(numbers)", "shop", "street"]
    assert 0.3 < found["(numbers)"] < 3.0  # drawn with 1
    assert 0.7 < found["shop"] < 4.0  # drawn with 1 / 0.8^2
    assert found["street"] > 50.0
    streets = [name.startswith("street=") for name in FEATURES.columns]
    assert np.abs(fitted.coef_[:, streets]).max() < 0.05 * np.abs(fitted.coef_).max()


@pytest.mark.parametrize("posterior", ["kronecker", "diagonal"])
def test_strengths_of_a_structured_posterior(fitted, posterior):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = laplace(posterior=posterior).fit(FEATURES, LABELS)
    assert model.solution_.evidence_converged
    assert model.block_precisions_["street"] > 30 * model.block_precisions_["shop"]
    for label in ("(numbers)", "shop"):
        assert 0.4 < model.block_precisions_[label] / fitted.block_precisions_[label] < 2.5


def test_of_levels_with_the_same_shares_the_rarer_is_held_back_more():
    """The prior is on the step from 0 to 1: in units of its spread, a rare level would be held back no more."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"shop": [f"s{n:02d}" for n in rng.integers(0, 30, 900)], "kind": rng.integers(0, 3, 900)})
    alike = {"few": 10, "many": 300}
    rows = [{"shop": shop, "kind": k} for shop, n in alike.items() for k in [0] * (8 * n // 10) + [1, 2] * (n // 10)]
    table = pd.concat([table, pd.DataFrame(rows)], ignore_index=True)

    def held(prior):
        """The effect on class 0 of the rare level, as a share of that of the frequent one."""
        model = Pipeline([("encode", TableEncoder()), ("fit", laplace(prior))]).fit(table, "kind")
        names = list(model[0].get_feature_names_out())
        few, many = (model[1].coef_[0, names.index(f"shop={shop}")] for shop in alike)
        return few / many

    assert held("blocks") < 0.7
    assert held("evidence") > 0.9


def test_new_rows_are_predicted_better_than_with_one_strength_or_one_for_each_level():
    rows = shops(8000, 60)
    table, new = rows[:1200], rows[1200:]
    new = new[new["shop"].isin(table["shop"])]

    def loss(prior):
        model = Pipeline([("encode", TableEncoder(min_frequency=1)), ("fit", laplace(prior))]).fit(table, "kind")
        P = model.predict_proba(new)
        return -np.log(P[np.arange(len(new)), np.searchsorted(["x", "y", "z"], new["kind"])]).mean()

    losses = {prior: loss(prior) for prior in ("blocks", "evidence", "ard")}
    assert losses["blocks"] < losses["evidence"] - 0.005
    assert losses["blocks"] < losses["ard"] - 0.005


# Units


def test_units_of_blocks():
    groups, spread = np.array([0, 0, 1, 1, 2]), np.array([0.5, 0.1, 0.3, 2.0, 0.2])
    ranges, two = np.array([1.0, 1.0, 1.0, 9.0, 4.0]), np.array([True, True, True, False, True])
    np.testing.assert_array_equal(StepUnits(groups).of(spread, ranges, two), [1.0, 1.0, 0.3, 2.0, 4.0])
    np.testing.assert_array_equal(CommonUnits(groups).of(spread, ranges, two), [0.5, 0.5, 2.0, 2.0, 0.2])


@pytest.mark.parametrize("units", [1e-6, 1e6])
def test_autoscaled_blocks_do_not_depend_on_units(units):
    X, y = numbers()
    labels = ["a", "a", "b", "b", "b"]
    scale = units ** np.array([1.0, -0.7, 0.5, 0.0, 1.0])
    model, other = laplace(blocked(labels)).fit(X, y), laplace(blocked(labels)).fit(X * scale, y)
    assert other.block_precisions_ == pytest.approx(model.block_precisions_, rel=1e-5)
    np.testing.assert_allclose(other.predict_proba(X * scale), model.predict_proba(X), atol=1e-7)


def test_without_autoscale_a_block_has_one_precision_in_the_units_of_the_data():
    X, y = numbers()
    X = X / [1.0, 30.0, 0.1, 5.0, 2.0]
    model = laplace(GaussianPrior(blocks=["a", "a", "b", "b", "b"])).fit(X, y)
    np.testing.assert_allclose(model.prior_.precision[:, :2], model.block_precisions_["a"], rtol=1e-9)
    np.testing.assert_allclose(model.prior_.precision[:, 2:], model.block_precisions_["b"], rtol=1e-9)
    thousand = laplace(GaussianPrior(blocks=["a", "a", "b", "b", "b"])).fit(1e3 * X, y)
    for label, precision in model.block_precisions_.items():
        assert thousand.block_precisions_[label] == pytest.approx(1e6 * precision, rel=1e-5)
    np.testing.assert_allclose(thousand.predict_proba(1e3 * X), model.predict_proba(X), atol=1e-7)


def test_levels_of_any_two_values_are_levels(fitted):
    other = laplace().fit(
        FEATURES.assign(**{name: 7.0 - 3.0 * FEATURES[name] for name in FEATURES if "=" in name}), LABELS
    )
    assert other.block_precisions_["shop"] == pytest.approx(fitted.block_precisions_["shop"], rel=1e-4)


# Tables


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "dataset"])
def test_a_pipeline_finds_the_blocks_of_its_encoder(fitted, library):
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds

    arrow = pa.Table.from_pandas(TABLE)
    tables = {"pandas": TABLE, "polars": pl.from_pandas(TABLE), "arrow": arrow, "dataset": ds.dataset(arrow)}
    model = Pipeline([("encode", TableEncoder(min_frequency=1)), ("fit", laplace())])
    model.fit(tables[library], "kind")
    explicit = laplace(blocked(model[0].get_feature_blocks_out())).fit(FEATURES.to_numpy(), LABELS)
    for other in (model[1], explicit):
        assert other.block_precisions_ == pytest.approx(fitted.block_precisions_, rel=1e-6)
    np.testing.assert_allclose(model.predict_proba(TABLE), explicit.predict_proba(FEATURES.to_numpy()), atol=1e-9)


def test_sparse_rows(fitted):
    model = laplace(blocked(ENCODER.get_feature_blocks_out())).fit(sp.csr_array(FEATURES.to_numpy()), LABELS)
    for label in ("(numbers)", "shop"):
        assert model.block_precisions_[label] == pytest.approx(fitted.block_precisions_[label], rel=2e-2)
    np.testing.assert_allclose(model.predict_proba(FEATURES.to_numpy()), fitted.predict_proba(FEATURES), atol=2e-3)


def test_an_array_has_no_names_to_tell_blocks():
    with pytest.raises(ValueError, match=r"prior='blocks'.*X has no names.*TableEncoder.*GaussianPrior\(blocks="):
        laplace().fit(FEATURES.to_numpy(), LABELS)


def test_a_table_of_numbers_is_one_block():
    X, y = numbers()
    table = pd.DataFrame(X, columns=list("abcde"))
    model, one = laplace().fit(table, y), laplace("evidence").fit(table, y)
    assert list(model.block_precisions_) == ["(numbers)"]
    np.testing.assert_allclose(model.prior_.precision, one.prior_.precision, rtol=1e-9)


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (GaussianPrior(blocks=["a", "b"]), ["2 labels", "5 columns"]),
        (GaussianPrior(blocks="ab"), ["'ab'", "a label for each column"]),
        (GaussianPrior(mean=0.5, blocks=["a"] * D), ["mean=0.5", "leave them out", "dict"]),
        (GaussianPrior(intercept_precision=2.0, blocks=["a"] * D), ["intercept_precision=2.0", "leave them out"]),
        (GaussianPrior(precision=2.0, blocks=["a"] * D), ["precision is 2.0", "dict"]),
        (GaussianPrior(precision={"b": 2.0}, blocks=["a"] * D), ["'b' are not blocks"]),
        (GaussianPrior(precision={"b": 2.0}), ["precision is .'b': 2.0", "numbers are needed"]),
        (GaussianPrior(autoscale="yes", blocks=["a"] * D), ["autoscale='yes'"]),
    ],
)
def test_errors_leave_nothing_half_fitted(prior, words):
    X, y = numbers()
    model = laplace(prior)
    for word in words:
        with pytest.raises(ValueError, match=word):
            model.fit(X, y)
    assert not hasattr(model, "coef_")


# As a part of an estimator


def test_clones_and_parameters():
    model = BayesianSoftmaxRegression(GaussianPrior(blocks=["a", "b"]))
    again = clone(model)
    assert again.prior.blocks == ["a", "b"]
    assert again.get_params()["prior__blocks"] == ["a", "b"]
    assert again.set_params(prior__blocks={"a": [0, 1]}).prior.blocks == {"a": [0, 1]}


@pytest.mark.parametrize("prior", ["blocks", blocked({"numbers": [0, 1, 2], "levels": [*range(3, FEATURES.shape[1])]})])
def test_storage(tmp_path, prior):
    model = laplace(prior).fit(FEATURES, LABELS)
    po.save(model, tmp_path / "m")
    loaded = po.load(tmp_path / "m")
    assert loaded.block_precisions_ == model.block_precisions_
    np.testing.assert_array_equal(loaded.predict_proba(FEATURES), model.predict_proba(FEATURES))
    np.testing.assert_allclose(clone(loaded).fit(FEATURES, LABELS).coef_, model.coef_, atol=1e-12)


def test_the_next_fit_may_have_no_blocks():
    model = laplace().fit(FEATURES, LABELS)
    model.set_params(prior="evidence").fit(FEATURES, LABELS)
    assert not hasattr(model, "block_precisions_")


def test_today_s_posterior_as_tomorrow_s_prior(fitted):
    half = laplace().fit(FEATURES[:750], LABELS[:750])
    both = laplace(half.as_prior()).fit(FEATURES[750:], LABELS[750:])
    whole = laplace(half.prior_).fit(FEATURES, LABELS)
    np.testing.assert_allclose(both.predict_proba(FEATURES), whole.predict_proba(FEATURES), atol=0.05)


def test_label_noise_and_other_approximations():
    X, y = numbers(n=150)
    labels = ["a", "a", "b", "b", "b"]
    noisy = BayesianSoftmaxRegression(blocked(labels), label_noise=0.05).fit(X, y)
    assert noisy.label_noise_ == 0.05
    assert set(noisy.block_precisions_) == {"a", "b"}
    wide = BayesianSoftmaxRegression(blocked(labels), approximation="variational").fit(X, y)
    plain = laplace(blocked(labels)).fit(X, y)
    assert wide.block_precisions_ == pytest.approx(plain.block_precisions_, rel=1e-9)


def test_what_is_shown(fitted):
    shown = str(fitted)
    chosen = fitted.block_precisions_
    assert "one per block of columns, by evidence" in shown
    first = sorted(chosen, key=chosen.get)
    listed = ", ".join(f"{label} {chosen[label]:.3g}" for label in first)
    assert f"3, with precisions {listed}\n" in shown
    many = laplace(blocked(range(FEATURES.shape[1]))).fit(FEATURES, LABELS)
    line = next(line for line in str(many).splitlines() if "with precisions" in line)
    assert line.endswith(", ...")
    assert line.count(",") == 7
