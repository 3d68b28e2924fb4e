"""Which model for a table: losses of rows held out, and the reason that is given."""

import numpy as np
import pyarrow as pa
import pytest
from threadpoolctl import threadpool_limits

from posteriori.meta import selection
from posteriori.meta.selection import MODELS, select_model, table_model


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
    """Without Gaussian processes, with two folds, and on one thread: fits are so small that threads would wait."""
    monkeypatch.setattr(selection, "_MOST_ROWS_OF_GP", 0)
    monkeypatch.setattr(selection, "_FOLDS", 2)
    with threadpool_limits(1):
        yield


@pytest.mark.usefixtures("quick")
def test_straight_borders_take_a_linear_model():
    found = select_model(straight(), "kind")
    assert found.name == "bayes"
    losses = {model.name: model.log_loss for model in found.comparison.models}
    assert set(losses) == {"softmax", "bayes", "gaussian"}
    assert [c.log_loss for c in found.comparison.models] == sorted(losses.values())
    assert found.comparison.models[0].difference == found.comparison.models[0].difference_error == 0.0
    assert "240 rows held out" in found.reason


@pytest.mark.usefixtures("quick")
def test_round_borders_do_not():
    found = select_model(round_(), "kind")
    assert found.name == "gaussian"
    losses = {model.name: model.log_loss for model in found.comparison.models}
    assert losses["gaussian"] < 0.5 * losses["softmax"]
    assert found.reason == "lowest log-loss on 300 rows held out"


@pytest.mark.usefixtures("quick")
def test_it_is_the_same_every_time_and_depends_on_the_seed():
    first, again, other = (select_model(straight(45), "kind", random_state=seed) for seed in (1, 1, 2))
    assert [(c.name, c.log_loss, c.difference_error) for c in first.comparison.models] == [
        (c.name, c.log_loss, c.difference_error) for c in again.comparison.models
    ]
    assert first.comparison.models[0].log_loss != other.comparison.models[0].log_loss


@pytest.mark.usefixtures("quick")
def test_a_class_of_one_row_is_no_obstacle():
    table = straight(60)
    kinds = table["kind"].to_pylist()
    kinds[7] = "rare"
    found = select_model(table.set_column(2, "kind", pa.array(kinds)), "kind")
    assert found.name in MODELS
    assert all(np.isfinite(c.log_loss) for c in found.comparison.models)


def test_many_rows_are_held_out_once(monkeypatch):
    monkeypatch.setattr(selection, "_ROWS_HELD_OUT_ONCE", 100)
    y = np.arange(150) % 3
    splits = selection._selection_folds(y, 0)
    assert len(splits) == 1
    assert len(splits[0][1]) == 30


def test_models_have_names():
    for name, kind in MODELS.items():
        model = table_model(name, random_state=3)
        assert type(model[-1]) is kind
    with pytest.raises(ValueError, match="model='svm' is unknown: use one of softmax, bayes"):
        table_model("svm")
