"""The report: its numbers are the evaluation's, nothing of the data is taken for HTML, and it stands alone."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posteriori.reports.page as module
from posteriori import (
    BayesianSoftmaxRegression,
    CalibratedClassifier,
    DeepGPClassifier,
    GaussianClassifier,
    SoftmaxRegression,
    Utility,
    UtilityClassifier,
    load,
)
from posteriori.reports.evaluation import score_probabilities
from posteriori.reports.page import report_page
from posteriori.reports.page_parts import labels_of, shortened
from posteriori.tables.encoder import TableEncoder

NAMES = ["length", "width"]
X = pd.DataFrame(load_iris().data[::3, :2], columns=NAMES)
CLASSES = np.array(["setosa", "versicolor", "virginica"])
Y = CLASSES[load_iris().target[::3]]
MODEL = GaussianNB().fit(X, Y)
SCORED = score_probabilities(Y, MODEL.predict_proba(X), MODEL.classes_)
NASTY = ["</script><script>alert(1)</script>", "<b>&amp;\"'", "naïve 鳥 🐦\n\u2028", "x" * 3000]


class Parsed(HTMLParser):
    """Tables by caption (rows of texts), elements with their attributes, and the contents of scripts."""

    def __init__(self, html):
        super().__init__()
        self.tables, self.elements, self.scripts, self.text, self._row, self._in = {}, [], [], "", None, []
        self.feed(html)
        assert not self._in, self._in  # all that was opened is closed

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("meta", "input"):
            return
        self._in.append(tag)
        if tag == "table":
            self._caption, self._rows = "", []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "script":
            self.scripts.append((dict(attributes), ""))

    def handle_endtag(self, tag):
        assert self._in.pop() == tag
        if tag == "table":
            self.tables[self._caption] = self._rows

    def handle_data(self, data):
        if not self._in or self._in[-1] in ("script", "style"):
            if self._in and self._in[-1] == "script":
                self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
            return
        self.text += data
        if "caption" in self._in:
            self._caption += data
        elif self._in and ("td" in self._in or "th" in self._in):
            self._rows[-1][-1] += data

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def by_id(self, key):
        return next(attributes for _, attributes in self.elements if attributes.get("id") == key)

    def json(self, key):
        return next(json.loads(text) for attributes, text in self.scripts if attributes.get("id") == key)

    def column(self, caption, name):
        head, *rows = self.tables[caption]
        return [row[head.index(name)] for row in rows]


def page(model=MODEL, table=X, y=Y, scored=SCORED, **options):
    return report_page(model, table, y, scored, **{"title": "Irises", "model_name": "naive Bayes"} | options)


def fitted(model):
    model = model.fit(X, Y)
    scored = score_probabilities(Y, model.predict_proba(X), model.classes_)
    return Parsed(page(model, scored=scored))


@pytest.fixture(scope="module")
def plain():
    return Parsed(page())


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(SCORED.scores))
def test_scores_are_those_of_the_evaluation(plain, name):
    score = SCORED.scores[name]
    assert float(plain.by_id(f"score-{name}")["value"]) == score.value
    assert f"{score.value:.4f}" in plain.text
    if name != "log_loss_of_frequencies":
        assert f"95 % interval: {score.lower:.4f} to {score.upper:.4f}" in plain.text


def test_confusion_and_balance(plain):
    head, *rows = plain.tables["Rows of each true class, by the class held most probable"]
    assert head == ["truth", *CLASSES, "all"]
    assert [row[0] for row in rows] == list(CLASSES)
    np.testing.assert_array_equal(np.array([row[1:-1] for row in rows], dtype=int), SCORED.confusion)
    assert plain.column("Rows of each class", "rows") == ["17", "17", "16"]
    drawn = plain.json("charts-data")
    assert drawn["chart-confusion"]["labels"] == drawn["chart-classes"]["labels"] == list(CLASSES)
    assert drawn["chart-confusion"]["counts"] == SCORED.confusion.tolist()
    assert drawn["chart-classes"]["values"] == [17, 17, 16]


def test_reliability_bins_hold_all_rows_and_their_frequencies(plain):
    caption = "Bins of about equally many rows"
    rows = np.array(plain.column(caption, "rows"), dtype=float)
    assert rows.sum() == len(Y)
    np.testing.assert_allclose(
        rows @ np.array(plain.column(caption, "frequency"), dtype=float) / len(Y),
        SCORED.scores["accuracy"].value,
        atol=1e-3,
    )
    np.testing.assert_allclose(
        rows @ np.array(plain.column(caption, "mean probability"), dtype=float) / len(Y),
        SCORED.probabilities.max(axis=1).mean(),
        atol=1e-3,
    )
    drawn = plain.json("charts-data")["chart-reliability"]
    assert drawn["rows"] == rows.tolist()
    assert np.dot(drawn["rows"], drawn["frequency"]) / len(Y) == pytest.approx(SCORED.scores["accuracy"].value)
    for lower, frequency, upper in zip(drawn["lower"], drawn["frequency"], drawn["upper"], strict=True):
        assert 0 <= lower <= frequency + 1e-12 <= upper + 2e-12 <= 1 + 3e-12


def test_odd_rows_come_in_order(plain):
    surprising = plain.tables["Surprising rows, counted from 0"][1:]
    expected = np.argsort(-SCORED.surprise, kind="stable")[:10]
    assert [int(row[0]) for row in surprising] == expected.tolist()
    n = expected[0]
    p = SCORED.probabilities[n]
    assert surprising[0][1:3] == [Y[n], f"{p[SCORED.codes[n]]:.3g}"]
    assert surprising[0][3].startswith(f"{CLASSES[p.argmax()]} {p.max():.3f}, ")
    assert surprising[0][4:] == [f"{X.length[n]:.4g}", f"{X.width[n]:.4g}"]
    uncertain = [int(row[0]) for row in plain.tables["Most uncertain rows, counted from 0"][1:]]
    P = SCORED.probabilities[uncertain]
    entropies = -(P * np.log(P + 1e-300)).sum(axis=1)
    assert (np.diff(entropies) <= 0).all()


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table, lambda d: np.column_stack([*d.values()])])
def test_all_kinds_of_tables_read_alike(plain, kind):
    table = kind({name: X[name].to_numpy() for name in NAMES})
    assert Parsed(page(table=table)).tables == plain.tables


def test_rows_are_told_by_their_place_and_columns_by_any_name():
    order = np.random.default_rng(0).permutation(len(Y))
    table = X.iloc[order].set_axis([7, "width"], axis=1)  # its index is shuffled too
    scored = score_probabilities(Y[order], SCORED.probabilities[order], CLASSES)
    head, first, *_ = Parsed(page(table=table, y=Y[order], scored=scored)).tables["Surprising rows, counted from 0"]
    assert head[4:] == ["7", "width"]
    assert order[int(first[0])] == SCORED.surprise.argmax()
    assert first[4:] == [f"{value:.4g}" for value in X.iloc[SCORED.surprise.argmax()]]


def test_missing_values_are_counted_and_the_target_is_no_feature():
    table = X.assign(species=Y, note=[None, "good"] * 25)
    table.loc[3:5, "width"] = np.nan
    parsed = Parsed(page(table=table))
    assert parsed.tables["Missing values by column"][1:] == [["note", "25", "50.0 %"], ["width", "3", "6.0 %"]]
    head = parsed.tables["Surprising rows, counted from 0"][0]
    assert head[4:] == ["length", "width", "note"]
    arrow = Parsed(page(table=pa.Table.from_pandas(table)))  # there NaN and null are different
    assert arrow.tables["Missing values by column"] == parsed.tables["Missing values by column"]


# --- what was learned -------------------------------------------------------------------------------------------------


def test_coefficients_with_credible_intervals():
    model = BayesianSoftmaxRegression().fit(X, Y)
    parsed = fitted(model)
    summary = model.summary("sum")
    summary = summary[summary.feature != "(intercept)"].set_index(["class", "feature"])
    rows = parsed.tables["Coefficients"][1:]
    assert len(rows) == 6
    ratios = []
    for name, mean, interval, sign, per_unit, sd in rows:
        label, feature = name.split(": ")
        spread, known = X[feature].std(ddof=0), summary.loc[(label, feature)]
        assert float(mean) == pytest.approx(known["mean"] * spread, rel=1e-3)
        lower, upper = map(float, interval.split(" to "))
        assert (lower, upper) == pytest.approx((known["lower"] * spread, known["upper"] * spread), rel=1e-3)
        assert float(per_unit) == pytest.approx(known["mean"], rel=1e-3)
        assert float(sign) == pytest.approx(known["probability_of_sign"], abs=1e-3)
        ratios.append(abs(known["mean"]) / known["sd"])
        assert float(sd) == pytest.approx(known["sd"], rel=1e-2)
    assert ratios == sorted(ratios, reverse=True)
    assert "standard deviation of the feature" in parsed.text
    drawn = parsed.json("charts-data")["chart-learned"]
    assert [f"{value:.4g}" for value in drawn["mean"]] == [row[1] for row in rows]
    assert drawn["labels"] == [row[0] for row in rows]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: model,
        lambda model: make_pipeline(StandardScaler().set_output(transform="pandas"), model),
        lambda model: make_pipeline(StandardScaler(), model),
        lambda model: UtilityClassifier(model),
        lambda model: CalibratedClassifier(model),
    ],
    ids=["alone", "pipeline with names", "pipeline", "utility", "calibrated"],
)
def test_coefficients_of_softmax_regression_within_anything(wrap):
    parsed = fitted(wrap(SoftmaxRegression()))
    rows = parsed.tables["Coefficients"][1:]
    assert {row[0] for row in rows} == {f"{label}: {name}" for label in CLASSES for name in NAMES}
    sizes = [abs(float(row[1])) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    inner = SoftmaxRegression().fit(X, Y)
    W = inner.coef_ - inner.coef_.mean(axis=0)
    if wrap(0) == 0:
        k, d = np.unravel_index(np.abs(W * X.std(ddof=0).to_numpy()).argmax(), W.shape)
        assert rows[0][0] == f"{CLASSES[k]}: {NAMES[d]}"
        assert float(rows[0][2]) == pytest.approx(W[k, d], rel=1e-3)


def test_pipeline_from_a_raw_table():
    table = pa.table(
        {"kind": Y, "length": X.length, "site": ["bog", None] * 25, "day": pd.date_range("2024-01-01", periods=50)}
    )
    model = make_pipeline(TableEncoder(), BayesianSoftmaxRegression()).fit(table, "kind")
    scored = score_probabilities(Y, model.predict_proba(table), model.classes_)
    parsed = Parsed(page(model, table, scored=scored))
    assert {row[0].split(": ")[0] for row in parsed.tables["Coefficients"][1:]} == set(CLASSES)
    features = {row[0].split(": ")[1] for row in parsed.tables["Coefficients"][1:]}
    assert features == set(model[-1].feature_names_in_)
    spread = X.length.std(ddof=0)
    row = next(row for row in parsed.tables["Coefficients"] if row[0] == "setosa: length")
    assert float(row[1]) == pytest.approx(float(row[4]) * spread, rel=1e-2)
    head, first, *_ = parsed.tables["Surprising rows, counted from 0"]
    assert head[4:] == ["length", "site", "day"]
    assert first[5] == ["bog", "missing"][int(first[0]) % 2]
    assert len(first[6]) == len("2024-01-01")


def test_one_row_of_coefficients_for_two_classes():
    two = Y != "setosa"
    model = LogisticRegression().fit(X[two], Y[two])
    scored = score_probabilities(Y[two], model.predict_proba(X[two]), model.classes_)
    parsed = Parsed(page(model, X[two], Y[two], scored))
    rows = {row[0]: float(row[2]) for row in parsed.tables["Coefficients"][1:]}
    assert rows == {
        f"virginica: {name}": pytest.approx(0.5 * w, rel=1e-3) for name, w in zip(NAMES, model.coef_[0], strict=True)
    }


def test_class_means():
    model = GaussianClassifier().fit(X, Y)
    parsed = fitted(model)
    assert parsed.tables["Class means"] == [
        ["feature", *CLASSES],
        *([name, *(f"{value:.4g}" for value in model.means_[:, d])] for d, name in enumerate(NAMES)),
    ]


def test_what_is_infinite_is_not_drawn():
    model = SoftmaxRegression().fit(X, Y)
    model.coef_ = model.coef_.copy()
    model.coef_[:, 1] = np.inf, -np.inf, 0
    with np.errstate(invalid="ignore"):
        parsed = Parsed(page(model))
    drawn = parsed.json("charts-data")["chart-learned"]
    assert None in drawn["values"]
    cells = [cell for row in parsed.tables["Coefficients"][1:] for cell in row[1:]]
    assert "unknown" in cells  # infinite about an infinite mean
    assert not {"inf", "-inf", "nan"} & set(cells)


def test_nothing_to_show():
    assert "KNeighborsClassifier has no coefficients" in fitted(KNeighborsClassifier()).text


def test_relevances():
    pytest.importorskip("jax")
    model = load(Path(__file__).parents[1] / "storage" / "golden" / "format-1" / "gp.safetensors")
    columns = [*NAMES, "petal length", "petal width"]
    table = pd.DataFrame(load_iris().data[::3], columns=columns)
    rows = Parsed(page(model, table)).tables["Relevances"][1:]
    expected = sorted(zip(columns, model.relevances_, strict=True), key=lambda pair: -pair[1])
    assert rows == [[name, f"{value:.4g}"] for name, value in expected]


@pytest.mark.slow
def test_deep_gp():
    pytest.importorskip("jax")
    assert "DeepGPClassifier has no" in fitted(DeepGPClassifier((1,), n_inducing=5, n_samples=2, max_iter=3)).text


# --- decisions --------------------------------------------------------------------------------------------------------


def probabilities(data):
    return np.frombuffer(base64.b64decode(data["probabilities"]), "<f8").reshape(-1, len(data["states"]))


def test_what_is_decided_on_in_the_page(plain):
    data = plain.json("decisions-data")
    np.testing.assert_array_equal(probabilities(data), SCORED.probabilities)
    assert data["truth"] == SCORED.codes.tolist()
    assert data["states"] == data["actions"] == list(CLASSES)
    assert data["utilities"] == np.eye(3).tolist()


def test_utilities_begin_as_given_in_the_order_of_the_classes():
    utility = Utility([[1, 2], [3, 4], [5, 6]], ["virginica", "setosa", "versicolor"], ["pick", "leave"])
    data = Parsed(page(utility=utility)).json("decisions-data")
    assert data["actions"] == ["pick", "leave"]
    assert data["utilities"] == [[3, 4], [5, 6], [1, 2]]


def test_utilities_of_a_classifier_that_has_some():
    utility = Utility(np.arange(9).reshape(3, 3), CLASSES)
    model = UtilityClassifier(GaussianNB(), utility).fit(X, Y)
    assert Parsed(page(model)).json("decisions-data")["utilities"] == utility.matrix.tolist()


def test_utilities_that_differ_from_row_to_row_are_not_for_the_page():
    utility = Utility(lambda row: np.eye(3), CLASSES, CLASSES)
    parsed = Parsed(page(utility=utility))
    assert parsed.json("decisions-data")["utilities"] == np.eye(3).tolist()
    assert "differs from row to row" in parsed.text


# --- any data ---------------------------------------------------------------------------------------------------------


def test_names_are_never_taken_for_html():
    rng = np.random.default_rng(0)
    names = np.sort(np.array(NASTY, dtype=object))
    y = names[rng.integers(0, 4, 60)]
    table = pd.DataFrame({"<i>": rng.normal(size=60), "</td>'\"": ["<img src=x onerror=alert(1)>"] * 60})
    model = GaussianNB().fit(table[["<i>"]].rename(columns=str), y)
    scored = score_probabilities(y, rng.dirichlet(np.ones(4), 60), names)
    html = page(model, table, y, scored, title="<u>&", model_name="</h1><script>", facts={"Data": "<u>.csv</dl>"})
    parsed = Parsed(html)  # fails where tags do not match
    assert {tag for tag, _ in parsed.elements} & {"i", "img", "u"} == set()
    assert len(parsed.scripts) == 3
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]
    assert parsed.json("decisions-data")["states"] == names.tolist()
    assert "<u>&" in parsed.text
    assert "x" * 100 not in parsed.text
    head = parsed.tables["Surprising rows, counted from 0"][0]
    assert head[4:] == ["<i>", "</td>'\""]


def test_half_a_character_can_be_written():
    y = np.array(["\ud800", "b"], dtype=object)
    scored = score_probabilities(y, [[0.5, 0.5], [0.3, 0.7]], y)
    page(table=X[:2], y=y, scored=scored).encode("utf-8")


def test_labels_stay_different_when_shortened():
    names = labels_of(["a" * 50 + "zz", "a" * 60 + "zz", "", " "])
    assert len(set(names)) == 4
    assert max(map(len, names)) < 45
    assert shortened("short") == "short"


def test_one_row():
    scored = score_probabilities(Y[:1], SCORED.probabilities[:1], CLASSES)
    parsed = Parsed(page(table=X[:1], y=Y[:1], scored=scored))
    assert "one row has no interval" in parsed.text
    assert "on 1 row of 3 classes" in parsed.text
    assert len(parsed.tables["Surprising rows, counted from 0"]) == 2


def test_many_rows_and_classes_make_no_large_page():
    rng = np.random.default_rng(0)
    n, K = 10_000, 50
    P = rng.dirichlet(np.ones(K), n)
    classes = np.array([f"class {k:02d}" for k in range(K)])
    codes = rng.integers(0, K, n)
    model = SoftmaxRegression().fit(rng.normal(size=(500, 20)), classes[codes[:500]])
    scored = score_probabilities(classes[codes], P, classes)
    html = page(model, pd.DataFrame(rng.normal(size=(n, 20))).rename(columns=str), classes[codes], scored)
    assert len(html.encode()) < 1_300_000
    parsed = Parsed(html)
    assert "2,000 of the 10,000 rows, chosen at random (seed 0)" in parsed.text
    data = parsed.json("decisions-data")
    rows = np.sort(np.random.default_rng(0).choice(n, 2000, replace=False))
    np.testing.assert_array_equal(probabilities(data), P[rows])
    assert data["truth"] == codes[rows].tolist()
    assert "30 of 1,000 are shown" in parsed.text


@pytest.mark.parametrize("table", [X[:10], X.to_numpy()[:10]])
def test_rows_must_be_those_of_the_evaluation(table):
    with pytest.raises(ValueError, match=r"table has 10 rows.*evaluation is of 50"):
        page(table=table)


def test_what_is_no_table():
    with pytest.raises(TypeError, match="table must be"):
        page(table=[1, 2, 3])


# --- the file ---------------------------------------------------------------------------------------------------------


def inside(tag, html):
    return re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)


def test_only_its_own_script_and_style_count_and_nothing_is_loaded():
    html = page()
    parsed = Parsed(html)
    policy = next(meta["content"] for meta in parsed.of("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    for directive, tag in (("script-src", "script"), ("style-src", "style")):
        (text,) = inside(tag, html)
        assert allowed[directive] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert allowed["default-src"] == "'none'"
    assert "unsafe" not in policy
    assert not [a for _, a in parsed.elements if "src" in a or "style" in a or a.get("href", "#")[0] != "#"]
    assert "@import" not in html
    assert "url(" not in html
    assert "\r" not in html
    assert page() == html  # the same every time


def test_an_empty_page_is_small():
    assert (
        len(page(table=X[:1], y=Y[:1], scored=score_probabilities(Y[:1], SCORED.probabilities[:1], CLASSES))) < 120_000
    )


def test_modules_share_one_scope_without_sharing_a_name():
    """Each becomes part of one script: what is at the top level of one must not hide what is at that of another."""
    names = []
    for name in module._MODULES:
        text = module._read(name)
        assert not re.search(r"^export (?!function|const|class)", text, re.M), name
        imported = set(re.findall(r'^import [^;]* from "\./(.*?)";', text, re.M))
        assert imported <= set(module._MODULES[: module._MODULES.index(name)])
        assert not re.search(r"^import [^;]* as ", text, re.M)  # there is no name but the first
        names += re.findall(r"^(?:export )?(?:function|const|class|let) (\w+)", text, re.M)
        names += re.findall(r"^const .*?, (\w+) = \d", text, re.M)
    assert len(names) > 50
    assert sorted(names) == sorted(set(names))
    (script,) = inside("script", page())
    assert not re.search(r"^(import|export)\b", script, re.M)


def test_a_reader_without_sight_or_mouse_finds_everything(plain):
    assert plain.of("html") == [{"lang": "en"}]
    tags = [tag for tag, _ in plain.elements]
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert tags.count(landmark) == 1
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(later <= sooner + 1 for sooner, later in pairwise(levels))
    places = [a["id"] for a in plain.of("div") if a.get("class") == "place"]
    drawn = plain.json("charts-data")
    assert set(places) == set(drawn)
    assert all(len(chart["title"]) > 5 for chart in drawn.values())
    assert tags.count("details") == len(places) + 1
    identities = [a["id"] for _, a in plain.elements if "id" in a]
    assert len(set(identities)) == len(identities)
    assert {a["href"][1:] for a in plain.of("a")} <= set(identities)
    assert all(a["aria-labelledby"] in identities for a in plain.of("section"))
