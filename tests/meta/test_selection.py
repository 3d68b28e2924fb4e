"""Which model for a table: losses of rows held out, and the reason that is given."""

import numpy as np
import pyarrow as pa
import pytest
from tests.slow import quick_first
from threadpoolctl import threadpool_limits

from posteriori.meta import selection
from posteriori.meta.judging import JudgedRows
from posteriori.meta.selection import FREQUENCIES, MODELS, select_model, table_model


def straight(n=240, seed=0):
    """Three classes with straight borders."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.argmax(np.column_stack([2 * X, -2 * X.sum(axis=1)]) + rng.gumbel(size=(n, 3)), axis=1)
    return pa.table({"a": X[:, 0], "b": X[:, 1], "kind": np.array(["x", "y", "z"])[y]})


def round_(n=300, seed=0):
    """A disc within a ring."""
    rng = np.random.default_rng(seed)
    radius = np.where(np.arange(n) % 2 == 0, rng.uniform(0.0, 1.0, n), rng.uniform(1.5, 2.5, n))
    angle = rng.uniform(0, 2 * np.pi, n)
    return pa.table({"a": radius * np.cos(angle), "b": radius * np.sin(angle), "kind": np.arange(n) % 2})


@pytest.fixture
def quick(monkeypatch):
    """Without trees and Gaussian processes, and on one thread: fits are so small that threads would wait."""
    monkeypatch.setattr(selection, "_CANDIDATES", ("bayes", "gaussian"))
    monkeypatch.setattr(selection, "_MOST_ROWS_OF_GP", 0)
    with threadpool_limits(1):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_straight_borders_take_a_linear_model():
    found = select_model(straight(), "kind")
    assert found.name == "bayes"
    losses = {model.name: model.log_loss for model in found.comparison.models}
    assert set(losses) == {"bayes", "gaussian", "frequencies"}
    assert [c.log_loss for c in found.comparison.models] == sorted(losses.values())
    assert found.comparison.models[0].difference == found.comparison.models[0].difference_error == 0.0
    assert "240 rows left out" in found.reason


@pytest.mark.usefixtures("quick")
def test_round_borders_do_not():
    found = select_model(round_(), "kind", stack=False)
    assert found.name == "gaussian"
    losses = {model.name: model.log_loss for model in found.comparison.models}
    assert losses["gaussian"] < 0.5 * losses["bayes"]
    assert found.reason == "lowest log-loss on 300 rows left out"


@pytest.mark.usefixtures("quick")
def test_what_is_selected_is_fitted_and_the_same_every_time():
    first, again = (select_model(straight(45), "kind", random_state=1) for _ in range(2))
    assert [(c.name, c.log_loss, c.difference_error) for c in first.comparison.models] == [
        (c.name, c.log_loss, c.difference_error) for c in again.comparison.models
    ]
    by_hand = table_model(first.name, random_state=1).fit(straight(45), "kind")
    np.testing.assert_allclose(first.model.predict_proba(straight(45)), by_hand.predict_proba(straight(45)))


def half_and_half(n=600, seed=0):
    """Borders that are straight between two classes and round between others: no one model is right about both."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * 1.5
    inside = (X**2).sum(axis=1) + rng.normal(size=n) < 2.0
    y = np.where(inside, 2, (X[:, 0] + rng.logistic(size=n) > 0).astype(int))
    return pa.table({"a": X[:, 0], "b": X[:, 1], "kind": np.array(["x", "y", "z"])[y]})


@pytest.mark.usefixtures("quick")
def test_a_stack_is_selected_where_it_gains_more_than_its_standard_error():
    found = select_model(half_and_half(), "kind", names=["bayes", "gaussian"])
    together = select_model(half_and_half(), "kind", names=["bayes", "gaussian"], stack=True)
    gain = together.model[-1].gain_
    assert together.name == "stack"
    assert found.name == ("stack" if gain.difference > gain.error else gain.best)
    assert together.reason.startswith(("a mixture (", "a product of powers ("))
    side = "below" if gain.difference >= 0 else "above"
    assert f"{abs(gain.difference):.4f} {side} {gain.best} alone" in together.reason
    alone = select_model(half_and_half(), "kind", names=["bayes", "gaussian"], stack=False)
    assert alone.name != "stack"


def test_the_class_frequencies_of_the_other_rows():
    rows = JudgedRows.of(np.arange(6.0)[:, None], np.array(list("aaabbc")), None)
    left = selection._frequencies(rows).left
    np.testing.assert_allclose(np.exp(left.log_proba[0]), np.array([2, 2, 1]) / 5)
    np.testing.assert_allclose(np.exp(left.log_proba[5]), np.array([3, 2, 0.5]) / 5.5)


@pytest.mark.usefixtures("quick")
def test_no_further_model_is_begun_after_the_time():
    begun = []
    found = select_model(straight(), "kind", names=["bayes", "gaussian"], max_seconds=1e-9, begin=begun.append)
    assert begun == ["bayes"]
    assert {model.name for model in found.comparison.models} == {"bayes", FREQUENCIES}
    assert found.reason.endswith("; no time was left for gaussian")


@pytest.mark.usefixtures("quick")
def test_a_class_of_one_row_is_no_obstacle():
    table = straight(60)
    kinds = table["kind"].to_pylist()
    kinds[7] = "rare"
    found = select_model(table.set_column(2, "kind", pa.array(kinds)), "kind")
    assert found.name in MODELS
    assert all(np.isfinite(c.log_loss) for c in found.comparison.models)


def test_candidates_depend_on_the_rows():
    assert selection.candidates(100) == ["bayes", "gaussian", "forest", "boosting", "gp"]
    assert selection.candidates(20_000) == ["bayes", "gaussian", "forest", "boosting"]
    assert selection.candidates(100, in_memory=False) == selection.candidates(10**6) == ["bayes", "gaussian"]


def test_models_have_names():
    for name, make in MODELS.items():
        model = table_model(name, random_state=3, keep=["id"])
        assert type(model[-1]) is type(make())
        assert model[0].keep == ["id"]
    with pytest.raises(ValueError, match="model='svm' is unknown: use one of softmax, bayes"):
        table_model("svm")


def test_priors_are_for_softmax_models():
    assert table_model("bayes")[-1].prior == table_model("softmax")[-1].prior == "evidence"
    assert (
        table_model("bayes", prior="blocks")[-1].prior == table_model("softmax", prior="blocks")[-1].prior == "blocks"
    )
    assert table_model("frequencies", prior="blocks")[-1].prior.precision == 1e30
    assert not hasattr(table_model("gaussian", prior="blocks")[-1].prior, "blocks")


@pytest.mark.usefixtures("quick")
def test_the_prior_is_compared_too():
    """Levels that have nothing to say: with a strength of their own they do no harm."""
    table = straight(300)
    noise = np.random.default_rng(0).integers(0, 30, 300)
    table = table.append_column("shop", pa.array([f"s{n}" for n in noise]))
    options = {"names": ["bayes"], "min_frequency": 1}
    one, blocks = (select_model(table, "kind", prior=prior, **options) for prior in ("evidence", "blocks"))
    losses = [found.comparison.models[0].log_loss for found in (one, blocks)]
    assert losses[1] < losses[0] - 0.01


# Nothing that is worse than the class frequencies


def noise(n=60, seed=0):
    """Heavy tails, and classes that have nothing to do with them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, size=(n, 8))
    return pa.table({f"x{d}": X[:, d] for d in range(8)} | {"kind": rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])})


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_class_frequencies_are_selected_where_nothing_can_be_learned():
    found = select_model(noise(seed=1), "kind")
    assert found.name == FREQUENCIES
    assert not found.learned
    assert found.comparison.best == FREQUENCIES
    assert "60 rows left out" in found.reason
    assert "the class frequencies have" in found.reason


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", quick_first(["bayes", "softmax", "gaussian"]))
def test_a_model_that_was_asked_for_is_kept_only_if_it_is_better(name):
    assert select_model(straight(), "kind", names=[name]).name == name
    assert not select_model(noise(), "kind", names=[name]).learned


@pytest.mark.usefixtures("quick")
def test_models_worse_than_the_frequencies_are_not_preferred(monkeypatch):
    """Of two within a standard error of the best, the preferred one is out of the question if it is worse than none."""
    from posteriori.meta.comparison import ComparedModel, Comparison

    def model(name, loss, difference, error):
        return ComparedModel(name, loss, 0.1, difference, error, 0.5, 0.5, 1.0, 0.5, "")

    models = [model("gaussian", 1.0, 0.0, 0.0), model(FREQUENCIES, 1.05, 0.05, 0.2), model("bayes", 1.1, 0.1, 0.2)]
    spread = np.tile([-0.05, 0.05], 5)
    losses = {"gaussian": np.ones(10) + spread, FREQUENCIES: np.full(10, 1.05), "bayes": np.full(10, 1.1)}
    assert selection._chosen(Comparison(models, np.arange(10), losses), None, must_stack=False)[0] == "gaussian"
    losses["gaussian"] = np.ones(10) + 10 * spread  # better by less than half a standard error
    assert selection._chosen(Comparison(models, np.arange(10), losses), None, must_stack=False)[0] == FREQUENCIES


def test_the_model_of_class_frequencies_has_intervals():
    table = noise(400)
    model = table_model(FREQUENCIES).fit(table, "kind")
    shares = np.unique(table["kind"].to_pylist(), return_counts=True)[1] / 400
    far = pa.table({name: np.array([0.0, 1e3, -1e5]) for name in table.column_names if name != "kind"})
    P = model.predict_proba(far)
    np.testing.assert_allclose(P, np.tile(shares, (3, 1)), atol=0.02)
    lower, upper = model[-1].predict_interval(model[0].transform(far), 0.95)
    error = np.sqrt(shares * (1 - shares) / 400)
    np.testing.assert_allclose(0.5 * (upper - lower)[0], 1.96 * error, rtol=0.2)


def test_weights_of_softmax_do_not_depend_on_units():
    """The prior is chosen by evidence: alpha = 1 in raw units was anything from nothing to everything."""
    table = straight(80)
    grams = table.set_column(0, "a", pa.array(np.asarray(table["a"]) * 1e6 + 3e6))
    P, Q = (table_model("softmax").fit(each, "kind").predict_proba(each) for each in (table, grams))
    np.testing.assert_allclose(P, Q, atol=1e-5)


@pytest.mark.usefixtures("quick")
def test_three_rows_are_no_obstacle():
    found = select_model(pa.table({"a": [1.0, 2.0, 3.0], "kind": ["x", "x", "y"]}), "kind", names=["bayes"])
    assert found.name in ("bayes", FREQUENCIES)


@pytest.mark.usefixtures("quick")
def test_every_fit_is_reported():
    heard = []
    select_model(straight(60), "kind", names=["bayes"], report=heard.append)
    assert [(each.name, each.fold, each.n_folds) for each in heard] == [("bayes", 1, 1)]
    assert all(np.isfinite(each.log_loss) and each.seconds >= 0 for each in heard)
