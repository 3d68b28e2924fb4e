"""Models by name and version, and files that change."""

from __future__ import annotations

import logging
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from tests.serve.asgi import client_of
from tests.serve.test_plain import GOOD

import posteriori as po
from posteriori.serve import app
from posteriori.serve.served_model import ServedModel, served
from posteriori.serve.shelf import ModelFile, model_files


def test_names_and_versions(tmp_path: Path, model: Any, penguins: pd.DataFrame) -> None:
    old = make_pipeline(po.TableEncoder(), po.SoftmaxRegression(alpha=100.0)).fit(penguins, "species")
    po.save(model, tmp_path / "new.model")
    po.save(old, tmp_path / "old.model")
    ask = client_of(app([f"birds@1={tmp_path}/old.model", f"birds@2={tmp_path}/new.model", f"{tmp_path}/old.model"]))
    names = [(known["name"], known["version"]) for known in ask.get("/models").json()["models"]]
    assert names[0] == ("birds", "2")
    assert names[1][0] == "old"
    assert len(names[1][1]) == 12
    first = {
        name: ask.post(f"/predict?{name}", json=[GOOD]).json() for name in ("model=birds", "model=birds&version=1")
    }
    row = pd.DataFrame([GOOD]).astype({"body_mass_g": float})
    for one, fitted in zip(first.values(), (model, old), strict=True):
        np.testing.assert_allclose(list(one["rows"][0]["proba"].values()), fitted.predict_proba(row)[0], rtol=1e-12)
    reply = ask.post("/predict", json=[GOOD])
    assert reply.status_code == 400
    assert "Several models are served: name one of 'birds', 'old'" in reply.json()["error"]
    assert ask.post("/predict?model=cats", json=[GOOD]).status_code == 404
    reply = ask.post("/predict?model=birds&version=3", json=[GOOD])
    assert (reply.status_code, "the versions are '1', '2'" in reply.json()["error"]) == (404, True)


@pytest.mark.parametrize("given", [["a.model", "x/a.model"], ["b@1=a.model", "b@1=c.model"]])
def test_two_models_of_one_name(given: list[str]) -> None:
    with pytest.raises(ValueError, match="Several models are called"):
        model_files(given)


@pytest.mark.parametrize("given", ["../etc=a.model", "a b=c.model", "=c.model", "a@=c/d.model@", "a="])
def test_names_that_cannot_be_in_an_address(given: str) -> None:
    if given.startswith("a@"):
        assert model_files([given])[0].version is None
        return
    with pytest.raises(ValueError, match=r"cannot be a name|names no model"):
        model_files([given])


def test_the_version_is_that_of_the_content(model_file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "penguins.model"
    copy.write_bytes(model_file.read_bytes())
    versions = [client_of(app(path)).get("/models").json()["models"][0]["version"] for path in (model_file, copy)]
    assert versions[0] == versions[1]


class TestChanges:
    """A file that changes while it is served."""

    def test_a_new_file_takes_the_place_of_the_old(self, tmp_path: Path, model: Any, penguins: pd.DataFrame) -> None:
        path = tmp_path / "birds.model"
        po.save(model, path)
        application = app(path)
        ask = client_of(application)
        before = ask.get("/models").json()["models"][0]["version"]
        new = make_pipeline(po.TableEncoder(), po.SoftmaxRegression(alpha=100.0)).fit(penguins, "species")
        po.save(new, path)
        shelf = application.desk.shelf
        assert [file.name for file in shelf.changed()] == ["birds"]
        shelf.reload(shelf.changed())
        assert shelf.changed() == []
        known = ask.get("/models").json()["models"]
        assert [one["class"] for one in known] == ["SoftmaxRegression"]
        assert known[0]["version"] != before
        assert list(shelf.models["birds"]) == [known[0]["version"]]

    @pytest.mark.parametrize("content", [b"", b"garbage" * 1000, None])
    def test_a_broken_file_leaves_the_old_one(
        self, tmp_path: Path, model_file: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "birds.model"
        whole = model_file.read_bytes()
        path.write_bytes(whole)
        application = app(path)
        ask, shelf = client_of(application), application.desk.shelf
        before = ask.post("/predict", json=[GOOD]).json()
        path.write_bytes(whole[: len(whole) // 2] if content is None else content)
        with caplog.at_level(logging.INFO, "posteriori.serve"):
            shelf.reload(shelf.changed())
        assert [record.getMessage() for record in caplog.records] == ["reload failed"]
        assert ask.post("/predict", json=[GOOD]).json() == before
        assert shelf.changed() == []  # it is not tried again until it changes
        text = ask.get("/metrics").text
        assert 'posteriori_reloads_total{model="birds",outcome="failed"} 1' in text

    def test_the_version_that_is_asked_by_default_stays_so_when_another_one_changes(
        self, tmp_path: Path, model: Any, penguins: pd.DataFrame
    ) -> None:
        path = tmp_path / "a.model"
        po.save(make_pipeline(po.TableEncoder(), po.SoftmaxRegression(alpha=100.0)).fit(penguins, "species"), path)
        po.save(model, tmp_path / "b.model")
        shelf = app([f"birds={path}", f"birds@2={tmp_path}/b.model"]).desk.shelf
        before = next(iter(shelf.models["birds"]))
        po.save(make_pipeline(po.TableEncoder(), po.SoftmaxRegression(alpha=10.0)).fit(penguins, "species"), path)
        shelf.reload(shelf.changed())
        assert before not in shelf.models["birds"]
        assert len(shelf.models["birds"]) == 2
        assert shelf.get("birds").version == "2"

    def test_files_that_are_loaded_at_the_same_time_all_take_their_places(
        self, tmp_path: Path, model: Any, penguins: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        paths = [tmp_path / "a.model", tmp_path / "b.model"]
        for path in paths:
            po.save(model, path)
        shelf = app(paths).desk.shelf
        before = {name: shelf.get(name).version for name in "ab"}
        new = make_pipeline(po.TableEncoder(), po.SoftmaxRegression(alpha=100.0)).fit(penguins, "species")
        for path in paths:
            po.save(new, path)
        at_once = Counter[str]()
        load = ModelFile.load

        def slow(file: ModelFile, utility: po.Utility | None) -> ServedModel:
            at_once["now"] += 1
            at_once["most"] = max(at_once["most"], at_once["now"])
            time.sleep(0.05)
            found = load(file, utility)
            at_once["now"] -= 1
            return found

        monkeypatch.setattr(ModelFile, "load", slow)
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(shelf.reload, [[file] for file in shelf.files]))
        assert all(shelf.get(name).version != before[name] for name in "ab")
        assert at_once["most"] == 1

    def test_a_file_that_is_gone_is_still_served(self, tmp_path: Path, model_file: Path) -> None:
        path = tmp_path / "birds.model"
        path.write_bytes(model_file.read_bytes())
        application = app(path)
        path.unlink()
        assert application.desk.shelf.changed() == []
        assert client_of(application).post("/predict", json=[GOOD]).status_code == 200

    def test_a_model_with_other_classes_than_the_utility_is_refused(
        self, tmp_path: Path, model: Any, penguins: pd.DataFrame, utility: po.Utility
    ) -> None:
        path = tmp_path / "birds.model"
        po.save(model, path)
        application = app(path, utility=utility)
        y = penguins["species"].replace({"Gentoo": "Emperor"})
        po.save(make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(penguins.drop(columns="species"), y), path)
        application.desk.shelf.reload()
        assert client_of(application).get("/models").json()["models"][0]["classes"] == ["Adelie", "Chinstrap", "Gentoo"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: po.TableEncoder(), "a fitted classifier with probabilities is needed"),
        (lambda: po.SoftmaxRegression(), "a fitted classifier with probabilities is needed"),
    ],
)
def test_what_cannot_be_served(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        served("it", "1", given())


def test_no_model() -> None:
    with pytest.raises(ValueError, match="No model is given"):
        app({})
