"""Tables of the page: what is said of rows is what NumPy, the library and scikit-learn say of them."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn import metrics
from sklearn.pipeline import make_pipeline
from tests.serve.asgi import Client, client_of, run

import posteriori as po
from posteriori.serve import Limits, app, page_tables, stored_tables
from posteriori.serve.bodies import ARROW, CSV, PARQUET

CLASSES = ["Adelie", "Chinstrap", "Gentoo"]
KEEP = {"states": CLASSES, "actions": ["keep", "release"], "matrix": [[1.0, -2.0], [-5.0, 3.0], [0.5, 0.25]]}
WEIGH = {
    "states": CLASSES[::-1],
    "actions": ["release", "weigh", "keep"],
    "matrix": [[0.0, 0.1, 0.2], [1.0, 0.9, -3.0], [-1.0, 0.8, 1.0]],
}


def utility_of(plain: dict[str, Any]) -> po.Utility:
    return po.Utility(plain["matrix"], plain["states"], plain["actions"])


def sent(client: Client, table: pd.DataFrame, query: str = "") -> dict[str, Any]:
    reply = client.post(f"/page/tables{query}", content=table.to_csv(index=False), headers={"content-type": CSV})
    assert reply.status_code == 201, reply.text
    return reply.json()


def asked(client: Client, table: dict[str, Any], what: str, **body: Any) -> dict[str, Any]:
    reply = client.post(f"/page/tables/{table['id']}/{what}", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def all_rows(client: Client, table: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    return asked(client, table, "rows", count=500, **body)["rows"]


@pytest.fixture(scope="module")
def unsure(penguins: pd.DataFrame) -> Any:
    """A model that is often wrong: of the columns it knows only two."""
    few = penguins[["species", "sex", "body_mass_g", "island"]]
    return make_pipeline(po.TableEncoder(), po.BayesianSoftmaxRegression()).fit(few, "species")


@pytest.fixture(scope="module")
def few(penguins: pd.DataFrame) -> pd.DataFrame:
    """Rows with missing values, of which every seventh has no known class."""
    table = penguins[["species", "sex", "body_mass_g", "island"]].copy()
    table.loc[::7, "species"] = None
    return table


@pytest.fixture(scope="module")
def small(unsure: Any) -> Client:
    return client_of(app({"unsure": unsure}))


@pytest.fixture(scope="module")
def table(small: Client, few: pd.DataFrame) -> dict[str, Any]:
    return sent(small, few)


@pytest.fixture(scope="module")
def P(unsure: Any, few: pd.DataFrame) -> np.ndarray:
    return unsure.predict_proba(few.drop(columns="species"))


@pytest.fixture(autouse=True)
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few hundred rows are worked on in several parts, as large ones are."""
    monkeypatch.setattr(stored_tables, "ROWS_AT_ONCE", 100)


class TestSummary:
    """What is said of all rows, against naive computations."""

    def test_the_description(self, small: Client, table: dict[str, Any], few: pd.DataFrame) -> None:
        assert (table["rows"], table["columns"]) == (344, list(few.columns))
        assert (table["truth"], table["labelled"]) == ("species", int(few["species"].notna().sum()))
        assert (table["model"], table["version"], table["left_out"], table["warnings"]) == ("unsure", "1", [], [])
        assert small.get(f"/page/tables/{table['id']}").json() == table

    def test_classes_and_uncertainty(
        self, small: Client, table: dict[str, Any], unsure: Any, few: pd.DataFrame, P: np.ndarray
    ) -> None:
        said = asked(small, table, "summary")
        assert said["rows"] == 344
        assert [one["class"] for one in said["classes"]] == CLASSES
        assert [one["predicted"] for one in said["classes"]] == np.bincount(P.argmax(axis=1), minlength=3).tolist()
        np.testing.assert_allclose([one["mean_probability"] for one in said["classes"]], P.mean(axis=0), rtol=1e-12)
        parts = unsure[1].uncertainty(unsure[0].transform(few.drop(columns="species")))
        for name in ("total", "aleatoric", "epistemic"):
            assert said["uncertainty"][name] == pytest.approx(getattr(parts, name).mean(), rel=1e-9)
        assert said["decisions"] is None
        assert said["scores"]["utility"] is None

    def test_decisions_are_those_of_decide(self, small: Client, table: dict[str, Any], P: np.ndarray) -> None:
        said = asked(small, table, "summary", utility=KEEP)["decisions"]
        found = po.decide(P, utility_of(KEEP), classes=CLASSES)
        assert said["actions"] == ["keep", "release"]
        assert said["counts"] == [int((found.actions == action).sum()) for action in said["actions"]]
        assert 0 < said["counts"][0] < 344
        assert said["expected_utility"] == pytest.approx(found.expected_utility.max(axis=1).mean(), rel=1e-12)
        assert said["value_of_information"] == pytest.approx(found.value_of_information.mean(), rel=1e-12)
        np.testing.assert_allclose(
            said["margin"]["quantiles"], np.quantile(found.margin, [0.05, 0.25, 0.5, 0.75, 0.95]), rtol=1e-12
        )
        bins, counts = np.asarray(said["margin"]["bins"]), said["margin"]["counts"]
        assert sum(counts) == 344
        assert counts[0] == int(((found.margin >= bins[0]) & (found.margin < bins[1])).sum())
        assert (bins[0], bins[-1]) == (0.0, pytest.approx(found.margin.max()))
        assert (said["flipped"], said["flips"]) == (None, [])

    def test_a_single_action_has_no_margin(self, small: Client, table: dict[str, Any]) -> None:
        one = {"states": CLASSES, "actions": ["wait"], "matrix": [[1], [2], [3]]}
        assert asked(small, table, "summary", utility=one)["decisions"]["margin"] is None
        assert all_rows(small, table, utility=one)[0]["margin"] is None

    def test_flips_are_those_between_two_decisions(self, small: Client, table: dict[str, Any], P: np.ndarray) -> None:
        said = asked(small, table, "summary", utility=KEEP, against=WEIGH)["decisions"]
        now = po.decide(P, utility_of(KEEP), classes=CLASSES).actions
        before = po.decide(P, utility_of(WEIGH), classes=CLASSES).actions
        flips = pd.crosstab(before, now).stack()
        flips = flips[np.array([a != b for a, b in flips.index]) & (flips > 0)].sort_values(ascending=False)
        assert said["flipped"] == int((now != before).sum()) == int(flips.sum())
        assert {(one["from"], one["to"]): one["rows"] for one in said["flips"]} == flips.to_dict()
        assert [one["rows"] for one in said["flips"]] == sorted(flips, reverse=True)
        assert asked(small, table, "summary", utility=KEEP, against=KEEP)["decisions"]["flipped"] == 0

    def test_scores_are_those_of_evaluate(
        self, small: Client, table: dict[str, Any], unsure: Any, few: pd.DataFrame, P: np.ndarray
    ) -> None:
        said = asked(small, table, "summary", utility=KEEP)["scores"]
        labelled = few.dropna(subset="species")
        known = few["species"].notna().to_numpy()
        judged = po.evaluate(unsure, labelled, "species", utility=utility_of(KEEP))
        assert said["rows"] == len(labelled)
        for name in ("log_loss", "accuracy", "brier"):
            assert said[name] == pytest.approx(judged.scores[name].to_dict(), rel=1e-12)
        assert said["confusion"] == {"labels": CLASSES, "counts": judged.confusion.tolist()}
        y, Q = labelled["species"], P[known]
        assert said["log_loss"]["value"] == pytest.approx(metrics.log_loss(y, Q), rel=1e-9)
        assert said["accuracy"]["value"] == pytest.approx(
            metrics.accuracy_score(y, np.array(CLASSES)[Q.argmax(axis=1)])
        )
        assert said["brier"]["value"] == pytest.approx(((Q - pd.get_dummies(y).to_numpy()) ** 2).sum(axis=1).mean())

        worth, decisions = said["utility"], judged.decisions
        assert decisions is not None
        assert worth["realised"]["value"] == pytest.approx(decisions.realised, rel=1e-12)
        assert worth["expected"] == pytest.approx(decisions.expected, rel=1e-12)
        assert worth["single"] == decisions.best_single_action
        best = max(one["value"] for one in worth["always"])
        assert best == pytest.approx(decisions.realised_by_best_single_action, rel=1e-12)

    def test_the_worth_of_decisions(
        self, small: Client, table: dict[str, Any], few: pd.DataFrame, P: np.ndarray
    ) -> None:
        """Row by row, by the definition of each number."""
        worth = asked(small, table, "summary", utility=WEIGH)["scores"]["utility"]
        utility = utility_of(WEIGH)
        U = utility.ordered(CLASSES).matrix
        assert U is not None
        actions = WEIGH["actions"]
        known = np.flatnonzero(few["species"].notna())
        y = [CLASSES.index(few["species"].iloc[n]) for n in known]
        taken = [actions.index(action) for action in po.decide(P[known], utility, classes=CLASSES).actions]
        values = np.array([U[k, a] for k, a in zip(y, taken, strict=True)])
        error = 1.959963984540054 * values.std(ddof=1) / np.sqrt(len(values))
        expected = {"value": values.mean(), "lower": values.mean() - error, "upper": values.mean() + error}
        assert worth["realised"] == pytest.approx(expected, rel=1e-9)
        for a, one in enumerate(worth["always"]):
            assert one == {"action": actions[a], "value": pytest.approx(np.mean([U[k, a] for k in y]), rel=1e-12)}
        assert worth["known"] == pytest.approx(np.mean([U[k].max() for k in y]), rel=1e-12)
        as_if = np.array([U[k, U[P[n].argmax()].argmax()] for k, n in zip(y, known, strict=True)])
        assert worth["most_probable"]["value"] == pytest.approx(as_if.mean(), rel=1e-12)
        spread = 1.959963984540054 * as_if.std(ddof=1) / np.sqrt(len(as_if))
        assert worth["most_probable"]["lower"] == pytest.approx(as_if.mean() - spread, rel=1e-9)
        naive = np.zeros((3, 3), dtype=int)
        for k, a in zip(y, taken, strict=True):
            naive[k, a] += 1
        assert worth["counts"] == naive.tolist()
        assert worth["known"] >= worth["realised"]["value"]

    def test_reliability_is_that_of_the_report(
        self, small: Client, table: dict[str, Any], few: pd.DataFrame, P: np.ndarray
    ) -> None:
        """Bins of about equally many rows: sums over them are those over all rows."""
        said = asked(small, table, "summary")["scores"]["reliability"]
        known = few["species"].notna().to_numpy()
        hit = np.array(CLASSES)[P.argmax(axis=1)][known] == few["species"][known]
        rows = np.array(said["rows"])
        assert rows.sum() == known.sum()
        assert rows @ said["frequency"] == pytest.approx(hit.sum())
        assert rows @ said["probability"] == pytest.approx(P.max(axis=1)[known].sum())
        assert (np.array(said["lower"]) <= said["frequency"]).all()

    def test_rows_without_classes_have_no_scores(self, small: Client, few: pd.DataFrame) -> None:
        for some in (few.drop(columns="species"), few[few["species"].isna()]):
            said = asked(small, sent(small, some), "summary", utility=KEEP)
            assert said["scores"] is None
            assert sum(said["decisions"]["counts"]) == len(some)

    def test_one_row(self, small: Client, few: pd.DataFrame) -> None:
        said = asked(small, sent(small, few[1:2]), "summary", utility=KEEP)
        assert said["scores"]["log_loss"]["lower"] is None
        assert said["scores"]["utility"]["realised"]["lower"] is None
        assert said["scores"]["rows"] == 1


class TestRows:
    """Some rows, in an order."""

    def test_values_and_answers(
        self, small: Client, table: dict[str, Any], unsure: Any, few: pd.DataFrame, P: np.ndarray
    ) -> None:
        said = all_rows(small, table, start=90, utility=KEEP, against=WEIGH)
        assert [row["row"] for row in said] == list(range(91, 345))
        np.testing.assert_allclose([row["proba"] for row in said], P[90:], rtol=1e-12)
        assert [row["class"] for row in said] == np.array(CLASSES)[P[90:].argmax(axis=1)].tolist()
        plain = few[90:].astype(object).where(few[90:].notna(), None)
        assert [row["values"] for row in said] == plain.to_dict(orient="records")
        assert [row["truth"] for row in said] == plain["species"].tolist()
        encoded = unsure[0].transform(few[90:].drop(columns="species"))
        lower, upper = unsure[1].predict_interval(encoded, 0.95)
        np.testing.assert_allclose([row["lower"] for row in said], lower, rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose([row["upper"] for row in said], upper, rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose([row["epistemic"] for row in said], unsure[1].uncertainty(encoded).epistemic)
        found = po.decide(P[90:], utility_of(KEEP), classes=CLASSES)
        assert [row["action"] for row in said] == found.actions.tolist()
        np.testing.assert_allclose([row["expected_utility"] for row in said], found.expected_utility, rtol=1e-12)
        np.testing.assert_allclose([row["margin"] for row in said], found.margin, rtol=1e-9, atol=1e-12)
        before = po.decide(P[90:], utility_of(WEIGH), classes=CLASSES).actions
        assert [row["was"] for row in said] == before.tolist()

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("by", ["row", "margin", "value_of_information", "total", "epistemic", "surprise", "p"])
    def test_sorted(
        self, small: Client, table: dict[str, Any], few: pd.DataFrame, P: np.ndarray, by: str, descending: bool
    ) -> None:
        """As a stable sort of one number for each row, in pages; rows without that number come last."""
        found = po.decide(P, utility_of(KEEP), classes=CLASSES)
        unsorted = all_rows(small, table)
        truth = few["species"].map({name: k for k, name in enumerate(CLASSES)})
        keys = {
            "row": np.arange(344),
            "margin": found.margin,
            "value_of_information": found.value_of_information,
            "surprise": [np.nan if np.isnan(k) else -np.log(P[n, int(k)]) for n, k in enumerate(truth)],
            "p": P[:, 1],
        }
        values = np.asarray(keys[by] if by in keys else [row[by] for row in unsorted])
        order = np.argsort(-values if descending else values, kind="stable") + 1
        sort = {"by": by, "descending": descending} | ({"class": "Chinstrap"} if by == "p" else {})
        first = asked(small, table, "rows", count=200, utility=KEEP, sort=sort)
        second = asked(small, table, "rows", start=200, count=200, utility=KEEP, sort=sort)
        assert [row["row"] for row in first["rows"] + second["rows"]] == order.tolist()
        assert first["total"] == second["total"] == 344
        if by == "surprise":
            assert second["rows"][-1]["truth"] is None

    @pytest.mark.parametrize(
        "only",
        [
            {"class": "Chinstrap"},
            {"action": "release"},
            {"truth": "Gentoo"},
            {"flipped": True},
            {"flipped": False},
            {"class": "Adelie", "truth": "Chinstrap"},
            {},
        ],
    )
    def test_only_some(self, small: Client, table: dict[str, Any], only: dict[str, Any]) -> None:
        everything = all_rows(small, table, utility=KEEP, against=WEIGH)

        def fits(row: dict[str, Any]) -> bool:
            flipped = row["action"] != row["was"]
            return all((flipped if name == "flipped" else row[name]) == value for name, value in only.items())

        expected = [row for row in everything if fits(row)]
        said = asked(small, table, "rows", count=500, utility=KEEP, against=WEIGH, only=only)
        assert said["rows"] == expected
        assert said["total"] == len(expected) > 0
        sort = {"by": "margin"}
        ordered = all_rows(small, table, utility=KEEP, against=WEIGH, only=only, sort=sort)
        assert ordered == sorted(expected, key=lambda row: row["margin"])

    def test_beyond_the_end(self, small: Client, table: dict[str, Any]) -> None:
        for body in ({}, {"sort": {"by": "total"}}, {"only": {"class": "Adelie"}}):
            said = asked(small, table, "rows", start=10**12, **body)
            assert (said["rows"], said["start"]) == ([], 10**12)
            assert said["total"] > 0

    def test_intervals_of_large_tables_are_those_of_the_rows_shown(
        self, small: Client, table: dict[str, Any], few: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(page_tables, "MOST_WITH_INTERVALS", 100)
        large = sent(small, few)
        assert "lower" not in large["answers"]
        sort = {"by": "total", "descending": True}
        for one, other in zip(all_rows(small, table, sort=sort), all_rows(small, large, sort=sort), strict=True):
            assert one["row"] == other["row"]
            np.testing.assert_allclose(one["lower"], other["lower"], rtol=1e-9, atol=1e-300)

    def test_kinds_of_values(self) -> None:
        """Dates, durations, truth values, numbers with gaps and categories, as JSON and as CSV."""
        rng = np.random.default_rng(4)
        n = 150
        frame = pd.DataFrame(
            {
                "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D"),
                "at": pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(rng.integers(0, 10**9, n), "ms"),
                "took": pd.to_timedelta(rng.integers(1, 10**4, n), "s"),
                "ok": rng.random(n) < 0.5,
                "x": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
                "kind": pd.Categorical(rng.choice(["a", "b", "c"], n)),
            }
        )
        frame["y"] = np.where(frame["took"].dt.total_seconds() + rng.normal(0, 2000, n) > 5000, 1, 0)
        fitted = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(frame, "y")
        ask = client_of(app(fitted))
        packed = io.BytesIO()
        frame.to_parquet(packed)
        reply = ask.post("/page/tables", content=packed.getvalue(), headers={"content-type": PARQUET})
        assert reply.status_code == 201, reply.text
        assert (reply.json()["truth"], reply.json()["labelled"]) == ("y", n)
        said = all_rows(ask, reply.json())
        for row, original in zip(said, frame.to_dict(orient="records"), strict=True):
            values = row["values"]
            assert values["day"] == original["day"].isoformat()
            assert pd.Timestamp(values["at"]) == original["at"]
            assert values["took"] == original["took"].total_seconds()
            assert values["ok"] is original["ok"]
            assert values["x"] == (None if np.isnan(original["x"]) else original["x"])
            assert (values["kind"], row["truth"]) == (original["kind"], original["y"])
        P = fitted.predict_proba(frame.drop(columns="y"))
        np.testing.assert_allclose([row["proba"] for row in said], P, rtol=1e-9)
        columns = [{name: row["values"][name] for name in frame.columns.drop("y")} for row in said]
        again = ask.post("/predict", json=columns).json()["rows"]
        np.testing.assert_allclose([list(row["proba"].values()) for row in again], P, rtol=1e-9)
        text = ask.post(f"/page/tables/{reply.json()['id']}/download", json={}).text
        back = pd.read_csv(io.StringIO(text), parse_dates=["day", "at"])
        assert (back["day"] == frame["day"]).all()
        assert (back["at"] == frame["at"]).all()
        np.testing.assert_allclose(back["took"], frame["took"].dt.total_seconds())
        np.testing.assert_allclose(back["x"], frame["x"])

    def test_sets_of_a_conformal_model(self, penguins: pd.DataFrame) -> None:
        X = penguins.drop(columns="species")
        inner = make_pipeline(po.TableEncoder(), po.SoftmaxRegression(alpha=50.0))
        fitted = po.ConformalClassifier(inner, alpha=0.02, random_state=0).fit(X, penguins["species"])
        ask = client_of(app(fitted))
        assert "set" in sent(ask, X)["answers"]
        said = all_rows(ask, sent(ask, X))
        assert [row["set"] for row in said] == fitted.predict_set(X).labels()
        assert len({len(row["set"]) for row in said}) > 1
        said = all_rows(ask, sent(ask, X, "?level=0.8"))
        assert [row["set"] for row in said] == fitted.predict_set(X, alpha=0.2).labels()


class TestDownload:
    """All rows as CSV."""

    def test_read_back(self, small: Client, table: dict[str, Any], few: pd.DataFrame, P: np.ndarray) -> None:
        reply = small.post(f"/page/tables/{table['id']}/download", json={"utility": KEEP})
        assert reply.headers["content-type"].startswith("text/csv")
        assert "content-length" not in reply.headers
        back = pd.read_csv(io.StringIO(reply.text))
        pd.testing.assert_frame_equal(back[list(few.columns)], few, check_dtype=False)
        np.testing.assert_allclose(back[[f"p({name})" for name in CLASSES]], P, rtol=1e-12)
        found = po.decide(P, utility_of(KEEP), classes=CLASSES)
        assert back["prediction"].tolist() == np.array(CLASSES)[P.argmax(axis=1)].tolist()
        assert back["action"].tolist() == found.actions.tolist()
        np.testing.assert_allclose(back["margin"], found.margin, rtol=1e-9, atol=1e-12)
        said = all_rows(small, table)
        np.testing.assert_allclose(back[[f"p({name}) lower" for name in CLASSES]], [row["lower"] for row in said])

    def test_no_decisions_without_a_utility(self, small: Client, table: dict[str, Any]) -> None:
        names = small.post(f"/page/tables/{table['id']}/download", json={}).text.splitlines()[0]
        assert "action" not in names
        assert '"p(Gentoo)"' in names

    def test_formulas_do_not_reach_a_spreadsheet(self, small: Client, few: pd.DataFrame) -> None:
        odd = few[:2].assign(**{"=cmd()": ["=1+1", "-5"], "prediction": ["@home", "b"]})
        text = small.post(f"/page/tables/{sent(small, odd, '?new_columns=leave')['id']}/download", json={}).text
        back = pd.read_csv(io.StringIO(text))
        assert back["'=cmd()"].tolist() == ["'=1+1", "-5"]
        assert back["prediction"].tolist() == ["'@home", "b"]
        assert set(back["prediction (model)"]) <= set(CLASSES)


class TestSending:
    """What may be sent, and what is refused."""

    @pytest.mark.parametrize("kind", [CSV, "text/tab-separated-values", ARROW, PARQUET])
    def test_formats(self, small: Client, few: pd.DataFrame, P: np.ndarray, kind: str) -> None:
        arrow, stream, packed = pa.Table.from_pandas(few, preserve_index=False), io.BytesIO(), io.BytesIO()
        with pa.ipc.new_stream(stream, arrow.schema) as writer:
            writer.write_table(arrow, max_chunksize=33)
        parquet.write_table(arrow, packed, row_group_size=70)
        bodies = {
            CSV: few.to_csv(index=False).encode(),
            "text/tab-separated-values": few.to_csv(index=False, sep="\t").encode(),
            ARROW: stream.getvalue(),
            PARQUET: packed.getvalue(),
        }
        reply = small.post("/page/tables", content=bodies[kind], headers={"content-type": kind})
        assert (reply.status_code, reply.json()["labelled"]) == (201, int(few["species"].notna().sum()))
        said = all_rows(small, reply.json(), sort={"by": "p", "class": "Gentoo"})
        order = np.argsort(P[:, 2], kind="stable")
        assert [row["row"] for row in said] == (order + 1).tolist()
        assert [row["values"]["body_mass_g"] for row in said] == [
            None if np.isnan(mass) else mass for mass in few["body_mass_g"].to_numpy()[order]
        ]

    def test_unknown_columns(self, small: Client, few: pd.DataFrame) -> None:
        more = few.assign(number=range(344), note="x")
        reply = small.post("/page/tables", content=more.to_csv(index=False), headers={"content-type": CSV})
        assert (reply.status_code, reply.json()["column"]) == (400, "number")
        found = sent(small, more, "?new_columns=leave")
        assert found["left_out"] == ["number", "note"]
        assert all_rows(small, found)[3]["values"]["number"] == 3

    def test_new_levels(self, small: Client, few: pd.DataFrame) -> None:
        new = few.assign(island=["Dream"] * 205 + ["Elephant"] + ["Dream"] * 138)
        reply = small.post("/page/tables", content=new.to_csv(index=False), headers={"content-type": CSV})
        assert (reply.status_code, reply.json()["row"], reply.json()["column"]) == (400, 206, "island")
        found = sent(small, new, "?new_levels=accept")
        assert "'Elephant'" in found["warnings"][0]

    def test_a_class_that_the_model_does_not_know(self, small: Client, few: pd.DataFrame) -> None:
        wrong = few.copy()
        wrong.loc[[40, 50], "species"] = ["Emperor", "King"]
        reply = small.post("/page/tables", content=wrong.to_csv(index=False), headers={"content-type": CSV})
        assert (reply.status_code, reply.json()["row"], reply.json()["column"]) == (400, 41, "species")
        assert "Row 41: column 'species' holds 'Emperor', which is not a class" in reply.json()["error"]

    def test_classes_in_another_spelling(self, small: Client, few: pd.DataFrame) -> None:
        """Labels are read as `posteriori evaluate` reads them."""
        found = sent(small, few.assign(species=few["species"].str.upper()))
        assert found["labelled"] == few["species"].notna().sum()

    def test_labels_that_are_numbers(self, numbers_model: Any) -> None:
        """A model without names takes the column of the classes that the request names."""
        rng = np.random.default_rng(1)
        X = pd.DataFrame(rng.normal(size=(30, 4)), columns=["x0", "x1", "x2", "x3"])
        y = rng.integers(0, 3, 30)
        ask = client_of(app(numbers_model))
        labels = pd.Series(y).where(y > 0)  # zeros are not known, so that the others are 1.0 and 2.0
        found = sent(ask, X.assign(label=labels), "?truth=label")
        assert (found["truth"], found["labelled"]) == ("label", int((y > 0).sum()))
        P = numbers_model.predict_proba(X.to_numpy())
        said = asked(ask, found, "summary")["scores"]
        assert said["accuracy"]["value"] == pytest.approx((P.argmax(axis=1) == y)[y > 0].mean())
        for query, words in (("?truth=x0", "one that the model reads"), ("?truth=z", "There is no column 'z'")):
            reply = ask.post(f"/page/tables{query}", content=X.to_csv(index=False), headers={"content-type": CSV})
            assert reply.status_code == 400
            assert words in reply.json()["error"]

    @pytest.mark.parametrize(
        ("body", "kind"),
        [
            (b"", CSV),
            (b"species,sex,body_mass_g,island\n", CSV),
            (b"sex,sex,body_mass_g,island\nmale,male,3,Dream\n", CSV),
            (b"sex,body_mass_g,island\nmale,heavy,Dream\n", CSV),
            (b"sex,island\nmale,Dream\n", CSV),
            (b"nothing", ARROW),
            (b"PAR1", PARQUET),
        ],
    )
    def test_bodies_that_are_refused(self, small: Client, body: bytes, kind: str) -> None:
        before = small.application.desk.tables
        kept = sorted(before.folder.iterdir()) if before.folder.exists() else []
        reply = small.post("/page/tables", content=body, headers={"content-type": kind})
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"].endswith((".", "?", "!"))
        assert (sorted(before.folder.iterdir()) if before.folder.exists() else []) == kept

    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ("new_columns=drop", "'refuse' or 'leave'"),
            ("new_levels=perhaps", "'refuse' or 'accept'"),
            ("level=2", "between 0 and 1"),
            ("level=.5&level=.6", "more than once"),
            ("answers=class", "'answers' in the address is unknown"),
            ("model=fish", "There is no model 'fish'"),
            ("version=9", "has no version '9'"),
        ],
    )
    def test_options_that_are_refused(self, small: Client, few: pd.DataFrame, query: str, words: str) -> None:
        content, headers = few.to_csv(index=False), {"content-type": CSV}
        reply = small.post(f"/page/tables?{query}", content=content, headers=headers)
        assert reply.status_code == (404 if query.startswith(("model", "version")) else 400)
        assert words in reply.json()["error"]

    def test_an_empty_arrow_table(self, small: Client, few: pd.DataFrame) -> None:
        arrow, stream = pa.Table.from_pandas(few[:0], preserve_index=False), io.BytesIO()
        with pa.ipc.new_stream(stream, arrow.schema) as writer:
            writer.write_table(arrow)
        reply = small.post("/page/tables", content=stream.getvalue(), headers={"content-type": ARROW})
        assert (reply.status_code, reply.json()["error"]) == (400, "There are no rows.")

    @pytest.mark.parametrize(
        ("what", "body", "words"),
        [
            ("summary", [], "must be an object"),
            ("summary", {"utilty": None}, "'utilty' is unknown here"),
            ("summary", {"utility": 3}, "utility must be an object"),
            ("summary", {"utility": KEEP | {"states": ["Adelie", "Chinstrap", "Emperor"]}}, "do not match the classes"),
            ("summary", {"utility": KEEP | {"matrix": [[1]]}}, "3 rows (states)"),
            (
                "download",
                {"utility": KEEP | {"states": CLASSES[:2], "matrix": [[1, 2]] * 2}},
                "do not match the classes",
            ),
            ("rows", {"start": -1}, "start is -1"),
            ("rows", {"start": True}, "start is True"),
            ("rows", {"count": 501}, "count is 501"),
            ("rows", {"sort": {"by": "colour"}}, "cannot be sorted by 'colour'"),
            ("rows", {"sort": {"by": ["row"]}}, "cannot be sorted by"),
            ("rows", {"sort": "row"}, "sort must be an object"),
            ("rows", {"sort": {"by": "p"}}, "not a known class"),
            ("rows", {"sort": {"by": "p", "class": "Emperor"}}, "'Emperor' is not a known class"),
            ("rows", {"sort": {"by": "margin"}}, "need decisions: send 'utility'"),
            ("rows", {"sort": {"descending": 1}}, "true or false"),
            ("rows", {"only": {"action": "keep"}}, "need decisions"),
            ("rows", {"only": {"action": "sell"}, "utility": KEEP}, "'sell' is not a known action"),
            ("rows", {"only": {"flipped": True}, "utility": KEEP}, "send 'against'"),
            ("rows", {"only": {"truth": "Emperor"}}, "'Emperor' is not a known class"),
            ("rows", {"only": {"colour": 1}}, "'colour' in only is unknown"),
        ],
    )
    def test_questions_that_are_refused(
        self, small: Client, table: dict[str, Any], what: str, body: Any, words: str
    ) -> None:
        reply = small.post(f"/page/tables/{table['id']}/{what}", json=body)
        assert reply.status_code == 400, reply.text
        assert words in reply.json()["error"]

    def test_what_a_table_does_not_have(self, numbers_model: Any) -> None:
        ask = client_of(app(po.SoftmaxRegression().fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])))
        found = sent(ask, pd.DataFrame({"x0": [1.0, 2.0]}))
        assert asked(ask, found, "summary")["uncertainty"] is None
        for by, words in (
            ("epistemic", "has no such answer"),
            ("surprise", "true classes of these rows are not known"),
        ):
            reply = ask.post(f"/page/tables/{found['id']}/rows", json={"sort": {"by": by}})
            assert reply.status_code == 400
            assert words in reply.json()["error"]


class TestKeeping:
    """Where tables are, who sees them, and for how long."""

    def test_the_folder_is_private(self, small: Client, table: dict[str, Any]) -> None:
        tables = small.application.desk.tables
        assert stat.S_IMODE(tables.folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((tables.folder / table["id"]).stat().st_mode) == 0o700

    @pytest.mark.parametrize(
        "key",
        ["0" * 32, "0" * 31, "A" * 32, "..", "%2e%2e%2fabout", "..%2f..%2fetc", ".part", "0" * 32 + "%00", "x" * 999],
    )
    def test_ids_that_are_none(self, small: Client, table: dict[str, Any], key: str) -> None:
        for method, path in (
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/summary"),
            ("POST", "/rows"),
            ("POST", "/download"),
        ):
            reply = small.request(method, f"/page/tables/{key}{path}", **({"json": {}} if method == "POST" else {}))
            assert reply.status_code == 404, (method, path)
            assert set(reply.json()) == {"error"}
        assert small.get(f"/page/tables/{table['id']}").status_code == 200

    def test_ids_cannot_be_guessed(self, small: Client, few: pd.DataFrame) -> None:
        found = {sent(small, few[:3])["id"] for _ in range(5)}
        assert len(found) == 5
        assert all(len(key) == 32 and set(key) <= set("0123456789abcdef") for key in found)

    def test_removed(self, small: Client, few: pd.DataFrame) -> None:
        key = sent(small, few)["id"]
        small.post(f"/page/tables/{key}/summary", json={"utility": KEEP})
        assert small.request("DELETE", f"/page/tables/{key}").status_code == 204
        for reply in (small.get(f"/page/tables/{key}"), small.request("DELETE", f"/page/tables/{key}")):
            assert reply.status_code == 404
            assert reply.json()["error"].endswith("Send the rows again.")
        assert not [path for path in small.application.desk.tables.folder.rglob("*") if key in str(path)]

    def test_tables_that_nobody_uses_go(self, unsure: Any, few: pd.DataFrame) -> None:
        ask = client_of(app(unsure))
        tables = ask.application.desk.tables
        old, used = sent(ask, few)["id"], sent(ask, few)["id"]
        long_ago = time.time() - stored_tables.MOST_SECONDS - 60
        os.utime(tables.folder / old / "about.json", (long_ago, long_ago))
        os.utime(tables.folder / used / "about.json", (long_ago + 120, long_ago + 120))
        assert ask.get(f"/page/tables/{used}").status_code == 200  # and is used by this
        (tables.folder / ".0.part").mkdir()
        os.utime(tables.folder / ".0.part", (long_ago, long_ago))
        new = sent(ask, few)["id"]
        assert {path.name for path in tables.folder.iterdir()} == {used, new}
        os.utime(tables.folder / new / "about.json", (long_ago, long_ago))
        assert ask.get(f"/page/tables/{new}").status_code == 404

    def test_the_oldest_go_when_there_are_too_many(
        self, unsure: Any, few: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stored_tables, "MOST_TABLES", 3)
        ask = client_of(app(unsure))
        keys = []
        for age in (400, 300, 200, 100):
            keys.append(sent(ask, few)["id"])
            about = ask.application.desk.tables.folder / keys[-1] / "about.json"
            os.utime(about, (time.time() - age, time.time() - age))
        assert [ask.get(f"/page/tables/{key}").status_code for key in keys] == [404, 200, 200, 200]

    def test_the_oldest_go_when_they_are_too_large(
        self, unsure: Any, few: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask = client_of(app(unsure))
        first = sent(ask, few)["id"]
        size = sum(file.stat().st_size for file in (ask.application.desk.tables.folder / first).iterdir())
        monkeypatch.setattr(stored_tables, "MOST_BYTES", int(2.5 * size))
        os.utime(ask.application.desk.tables.folder / first / "about.json", (time.time() - 9, time.time() - 9))
        second, third = sent(ask, few)["id"], sent(ask, few)["id"]
        assert [ask.get(f"/page/tables/{key}").status_code for key in (first, second, third)] == [404, 200, 200]
        monkeypatch.setattr(stored_tables, "MOST_BYTES", size // 4)
        reply = ask.post("/page/tables", content=few.to_csv(index=False), headers={"content-type": CSV})
        assert reply.status_code == 413
        assert ask.get(f"/page/tables/{third}").status_code == 200

    def test_nothing_is_left_of_a_table_that_fails(
        self, unsure: Any, few: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask = client_of(app(unsure))

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(stored_tables.Draft, "append", full)
        reply = ask.post("/page/tables", content=few.to_csv(index=False), headers={"content-type": CSV})
        assert reply.status_code == 507
        assert list(ask.application.desk.tables.folder.iterdir()) == []

    def test_many_at_the_same_time(self, unsure: Any, few: pd.DataFrame) -> None:
        application = app(unsure)
        sizes = list(range(10, 130, 10))

        async def all_at_once() -> list[Any]:
            transport = httpx.ASGITransport(application)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
                bodies = [few[:n].to_csv(index=False) for n in sizes]
                headers = {"content-type": CSV}
                replies = await asyncio.gather(
                    *(client.post("/page/tables", content=body, headers=headers) for body in bodies)
                )
                keys = [reply.json()["id"] for reply in replies]
                found = await asyncio.gather(
                    *(client.post(f"/page/tables/{key}/summary", json={"utility": KEEP}) for key in keys)
                )
                return [reply.json() for reply in found]

        summaries = run(all_at_once())
        assert [one["rows"] for one in summaries] == sizes
        assert [sum(one["decisions"]["counts"]) for one in summaries] == sizes

    def test_two_processes_share_the_tables(self, unsure: Any, few: pd.DataFrame, tmp_path: Path) -> None:
        """Applications with one folder, as the workers of a server have."""
        one, other = (client_of(app(unsure, folder=tmp_path)) for _ in range(2))
        found = sent(one, few)
        assert other.get(f"/page/tables/{found['id']}").json() == found
        assert all_rows(other, found, sort={"by": "total"}) == all_rows(one, found, sort={"by": "total"})
        assert other.request("DELETE", f"/page/tables/{found['id']}").status_code == 204
        assert one.get(f"/page/tables/{found['id']}").status_code == 404

    @pytest.mark.slow
    def test_workers_share_the_tables(
        self, unsure: Any, few: pd.DataFrame, serve: Callable[..., Any], tmp_path: Path
    ) -> None:
        po.save(unsure, tmp_path / "unsure.model")
        with serve(str(tmp_path / "unsure.model"), "--workers", "2") as server:
            reply = server.post("/page/tables", content=few.to_csv(index=False), headers={"content-type": CSV})
            assert reply.status_code == 201
            key = reply.json()["id"]
            said = [server.post(f"/page/tables/{key}/summary", json={"utility": KEEP}) for _ in range(20)]
            assert {one.status_code for one in said} == {200}
            assert len({one.text for one in said}) == 1

    def test_a_model_that_changes_on_disk(
        self, unsure: Any, penguins: pd.DataFrame, few: pd.DataFrame, tmp_path: Path
    ) -> None:
        """A table keeps the answers of the version it was made with, and says so."""
        path = tmp_path / "birds.model"
        po.save(unsure, path)
        application = app(path)
        ask = client_of(application)
        before = sent(ask, few)
        shown = all_rows(ask, before)
        columns = ["species", "sex", "body_mass_g", "island"]
        other = make_pipeline(po.TableEncoder(), po.BayesianSoftmaxRegression()).fit(penguins[columns][::2], "species")
        po.save(other, path)
        application.desk.shelf.reload()
        after = sent(ask, few)
        assert before["version"] != after["version"]
        assert ask.get(f"/page/tables/{before['id']}").json()["version"] == before["version"]
        assert all_rows(ask, before) == shown
        assert all_rows(ask, after) != shown
        known = ask.get(f"/page/tables/{before['id']}?version={before['version']}&model=birds")
        assert known.status_code == 200
        reply = ask.post(f"/page/tables/{before['id']}/summary?version={after['version']}", json={})
        assert reply.status_code == 409
        assert f"those of version '{before['version']}', not of '{after['version']}'" in reply.json()["error"]
        assert ask.get(f"/page/tables/{before['id']}?model=fish").status_code == 409

    def test_an_upload_that_takes_too_long_ends(
        self, unsure: Any, few: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The thread does not go on for nobody, and keeps nothing."""
        from posteriori.serve.served_model import ServedModel

        pieces = ServedModel.pieces
        read = []

        def slow(self: Any, *arguments: Any) -> Any:
            for _ in range(100):
                read.append(1)
                time.sleep(0.05)
                yield from pieces(self, *arguments)

        application = app(unsure, limits=Limits(seconds=0.3))
        ask = client_of(application)
        monkeypatch.setattr(ServedModel, "pieces", slow)
        reply = ask.post("/page/tables", content=few.to_csv(index=False), headers={"content-type": CSV})
        assert reply.status_code == 504
        application.desk.executor.shutdown(wait=True)
        assert len(read) < 30
        assert list(application.desk.tables.folder.iterdir()) == []
