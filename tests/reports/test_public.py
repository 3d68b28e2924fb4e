"""evaluate and report as users call them: labels or column names, weights, utilities, views."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import accuracy_score, brier_score_loss, confusion_matrix, log_loss
from sklearn.naive_bayes import GaussianNB

import posteriori as po
from posteriori.reports.evaluation import score_probabilities

X, CODES = load_iris(return_X_y=True)
CLASSES = np.array(["setosa", "versicolor", "virginica"])
Y = CLASSES[CODES]
NAMES = ["a", "b", "c", "d"]
WEIGHTS = np.random.default_rng(0).uniform(0.1, 2.0, 150)
MODEL = GaussianNB().fit(X[::2], Y[::2])
P = MODEL.predict_proba(X)


def frame(kind=pd.DataFrame):
    return kind({name: X[:, d] for d, name in enumerate(NAMES)} | {"kind": Y, "w": WEIGHTS})


def values(evaluation):
    return {name: score.value for name, score in evaluation.scores.items()}


def test_scores_are_those_of_scikit_learn():
    found = po.evaluate(MODEL, X, Y)
    assert found.scores["accuracy"].value == pytest.approx(accuracy_score(Y, MODEL.predict(X)))
    assert found.scores["log_loss"].value == pytest.approx(log_loss(Y, P))
    np.testing.assert_array_equal(found.confusion, confusion_matrix(Y, MODEL.predict(X)))
    np.testing.assert_array_equal(found.probabilities, P)


def test_weighted_scores_are_those_of_scikit_learn():
    found = po.evaluate(MODEL, X, Y, sample_weight=WEIGHTS)
    assert found.scores["accuracy"].value == pytest.approx(accuracy_score(Y, MODEL.predict(X), sample_weight=WEIGHTS))
    assert found.scores["log_loss"].value == pytest.approx(log_loss(Y, P, sample_weight=WEIGHTS))
    brier = np.average(((P - np.eye(3)[CODES]) ** 2).sum(axis=1), weights=WEIGHTS)
    assert found.scores["brier"].value == pytest.approx(brier)
    two = score_probabilities([0, 1, 1], [[0.6, 0.4], [0.1, 0.9], [0.7, 0.3]], [0, 1], sample_weight=[1.0, 2.0, 0.5])
    expected = brier_score_loss([0, 1, 1], [0.4, 0.9, 0.3], sample_weight=[1.0, 2.0, 0.5])
    assert two.scores["brier"].value == pytest.approx(2 * expected)
    np.testing.assert_allclose(found.confusion, confusion_matrix(Y, MODEL.predict(X), sample_weight=WEIGHTS))


def test_a_weight_of_two_is_a_row_that_occurs_twice():
    """The means; intervals differ, as repeated rows are not independent."""
    twice = np.where(np.arange(150) % 3 == 0, 2, 1)
    rows = np.repeat(np.arange(150), twice)
    assert values(po.evaluate(MODEL, X, Y, sample_weight=twice)) == pytest.approx(
        values(po.evaluate(MODEL, X[rows], Y[rows])), abs=0.02
    )
    same = po.evaluate(MODEL, X, Y, sample_weight=np.full(150, 3.0))
    for name, score in po.evaluate(MODEL, X, Y).scores.items():
        assert same.scores[name] == pytest.approx(score, rel=1e-9), name


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_target_and_weights_by_the_names_of_columns(kind):
    table = frame(kind)
    model = po.SoftmaxRegression().fit(table, "kind", sample_weight="w")
    found = po.evaluate(model, table, "kind", sample_weight="w")
    assert values(found) == pytest.approx(values(po.evaluate(model, table, Y, sample_weight=WEIGHTS)))
    foreign = GaussianNB().fit(pd.DataFrame(X, columns=NAMES), Y)
    assert po.evaluate(foreign, frame(), "kind", sample_weight="w").scores["accuracy"].value > 0.9


def test_rows_that_are_not_in_memory():
    import dask.dataframe as dd

    table = frame(pa.table)
    model = po.SoftmaxRegression().fit(table, "kind", sample_weight="w")
    expected = po.evaluate(model, table, "kind", sample_weight="w")
    for rows in (ds.dataset(table), dd.from_pandas(frame(), npartitions=2)):
        found = po.evaluate(model, rows, "kind", sample_weight="w")
        assert values(found) == pytest.approx(values(expected), rel=1e-9)


def test_known_probabilities_are_not_computed_again():
    class Silent:
        classes_ = CLASSES

    assert values(po.evaluate(Silent(), X, Y, probabilities=P)) == values(po.evaluate(MODEL, X, Y))


def test_the_worth_of_decisions():
    U = np.array([[1.0, -2.0, 0.2], [-1.0, 2.0, 0.2], [-1.0, 1.0, 0.2]])
    utility = po.Utility(U, CLASSES, ["keep", "release", "ask"])
    value = po.evaluate(MODEL, X, Y, utility=utility).decisions
    chosen = (P @ U).argmax(axis=1)
    assert value.realised == pytest.approx(U[CODES, chosen].mean())
    assert value.expected == pytest.approx((P @ U).max(axis=1).mean())
    assert value.actions == {a: int((chosen == i).sum()) for i, a in enumerate(["keep", "release", "ask"])}
    fixed = U[CODES].mean(axis=0)
    assert value.best_single_action == ["keep", "release", "ask"][fixed.argmax()]
    assert value.realised_by_best_single_action == pytest.approx(fixed.max())
    weighted = po.evaluate(MODEL, X, Y, utility=utility, sample_weight=WEIGHTS).decisions
    assert weighted.realised == pytest.approx(np.average(U[CODES, chosen], weights=WEIGHTS))
    assert po.evaluate(MODEL, X, Y).decisions is None


def test_views():
    found = po.evaluate(MODEL, X, Y)
    table = found.to_frame()
    assert [*table.columns] == ["value", "lower", "upper"]
    assert tuple(table.loc["log_loss"]) == found.scores["log_loss"]
    assert found.confusion_frame().loc["versicolor", "virginica"] == found.confusion[1, 2]
    assert repr(found).startswith("Evaluation(150 rows, 3 classes: accuracy=0.9")


def test_report_writes_a_page_with_the_numbers_of_the_evaluation(tmp_path):
    path = tmp_path / "report.html"
    page = po.report(MODEL, X, Y, path, title="Irises", name="naive Bayes")
    assert path.read_text(encoding="utf-8") == page.html
    assert values(page.evaluation) == values(po.evaluate(MODEL, X, Y))
    assert f"value='{page.evaluation.scores['log_loss'].value!r}'" in page.html
    assert "<title>Irises" in page.html
    assert page._repr_html_().startswith("<iframe srcdoc='&lt;!DOCTYPE html&gt;")
    assert repr(page).startswith("Report(evaluation=Evaluation(150 rows")


def test_report_of_a_table_with_target_and_weights_in_it():
    model = po.SoftmaxRegression().fit(frame(), "kind", sample_weight="w")
    page = po.report(model, frame(), "kind", sample_weight="w")
    assert "<dt>Features</dt><dd>4</dd>" in page.html
    assert "SoftmaxRegression: evaluation" in page.html
    assert "Weight of each true class" in page.html
