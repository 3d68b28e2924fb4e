"""MLflow's client of scoring servers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow.pyfunc.scoring_server.client import ScoringServerClient


@pytest.fixture
def client(alone: Any) -> ScoringServerClient:
    return ScoringServerClient("127.0.0.1", alone.port)


@pytest.fixture
def of_several(server: Any) -> ScoringServerClient:
    return ScoringServerClient("127.0.0.1", server.port)


def test_is_it_there(client: ScoringServerClient, said: dict[str, Any]) -> None:
    client.ping()
    client.wait_server_ready(timeout=5)
    assert client.get_version() == said["version"]


def test_a_table(client: ScoringServerClient, rows: pd.DataFrame, said: dict[str, Any]) -> None:
    """Missing numbers and missing text are NaN in what this client sends."""
    assert client.invoke(rows)["predictions"] == said["class"]
    assert client.invoke(rows.set_index(rows.index + 100))["predictions"] == said["class"]


def test_answers_as_columns(client: ScoringServerClient, rows: pd.DataFrame, said: dict[str, Any]) -> None:
    wanted = {"answers": ["class", "proba", "lower", "total"], "level": said["level"]}
    table = client.invoke(rows, params=wanted).get_predictions()
    classes = ["Adelie", "Chinstrap", "Gentoo"]
    assert list(table) == ["prediction", *map("p({})".format, classes), *map("p({}) lower".format, classes), "total"]
    assert table["prediction"].tolist() == said["class"]
    np.testing.assert_allclose(table.iloc[:, 1:4], said["proba"], rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(table.iloc[:, 4:7], said["lower"], rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(table["total"], said["total"], rtol=1e-12)


def test_decisions(client: ScoringServerClient, rows: pd.DataFrame, said: dict[str, Any]) -> None:
    table = client.invoke(rows, params={"answers": ["action"], "utility": said["utility"]}).get_predictions()
    assert table["action"].tolist() == said["action"]


def test_records(client: ScoringServerClient, rows: pd.DataFrame, said: dict[str, Any]) -> None:
    assert client.invoke(rows.to_dict(orient="records"))["predictions"] == said["class"]


@pytest.mark.parametrize("kind", ["array", "table", "list"])
def test_a_matrix(of_several: ScoringServerClient, said: dict[str, Any], kind: str) -> None:
    """Of several models one is named in params."""
    X = np.array(said["matrix"])
    data = {"array": X, "table": pd.DataFrame(X), "list": X.tolist()}[kind]
    found = of_several.invoke(data, params={"model": "matrix", "answers": ["proba"]}).get_predictions()
    np.testing.assert_allclose(found, said["matrix proba"], rtol=1e-12)
    assert of_several.invoke(data, params={"model": "matrix"})["predictions"] == said["matrix class"]


def test_versions(of_several: ScoringServerClient, rows: pd.DataFrame, said: dict[str, Any]) -> None:
    params = {"model": "penguins", "version": "1", "answers": ["proba"]}
    found = of_several.invoke(rows, params=params).get_predictions("dataframe")
    np.testing.assert_allclose(found, said["old proba"], rtol=1e-12, atol=1e-300)


def test_errors(client: ScoringServerClient, rows: pd.DataFrame) -> None:
    told = r"""error code 400.*"Row 2: column 'body_mass_g' holds 'big', where a number is expected"""
    wrong = rows.astype({"body_mass_g": object})
    wrong.loc[1, "body_mass_g"] = "big"
    with pytest.raises(Exception, match=told):
        client.invoke(wrong)
    with pytest.raises(Exception, match='"error_code":"BAD_REQUEST"'):
        client.invoke(rows.drop(columns="year"))


def test_csv_as_pandas_writes_it(alone: Any, rows: pd.DataFrame, said: dict[str, Any]) -> None:
    import requests

    text = io.StringIO()
    rows.to_csv(text, index=False)
    headers = {"Content-Type": "text/csv; charset=utf-8"}
    reply = requests.post(f"{alone.url}/invocations", data=text.getvalue(), headers=headers)
    assert reply.json() == {"predictions": said["class"]}
