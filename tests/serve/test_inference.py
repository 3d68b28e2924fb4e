"""The Open Inference Protocol: every answer is that of the model, in JSON and in binary; what is wrong is refused."""

from __future__ import annotations

import asyncio
import http.client
import signal
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from tests.serve.asgi import Client, client_of, run
from tests.serve.conftest import serving
from tests.serve.test_plain import GOOD, plain, records

import posteriori as po
from posteriori.serve import Limits, app
from posteriori.serve.answers import ANSWERS

INFER = "/v2/models/penguins/infer"
TEXT = ("island", "sex")


def tensor(name: str, values: list[Any], datatype: str | None = None, **more: Any) -> dict[str, Any]:
    datatype = datatype or ("BYTES" if name in TEXT else "FP64")
    return {"name": name, "datatype": datatype, "shape": [len(values)], "data": values} | more


def tensors(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [tensor(name, [row[name] for row in rows]) for name in rows[0]]


def in_binary(given: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], bytes]:
    """The same tensors, their values in bytes after the JSON."""
    found, content = [], b""
    for one in given:
        if one["datatype"] == "BYTES":
            texts = [(text or "").encode() for text in one["data"]]
            part = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        else:
            part = np.array(one["data"], dtype="<f8").tobytes()
        content += part
        bare = {name: value for name, value in one.items() if name != "data"}
        found.append(bare | {"parameters": {"binary_data_size": len(part)}})
    return found, content


def post_binary(client: Client, body: dict[str, Any], content: bytes, path: str = INFER) -> Any:
    head = orjson.dumps(body)
    return client.post(path, content=head + content, headers={"Inference-Header-Content-Length": str(len(head))})


def values_of(reply: Any) -> dict[str, np.ndarray]:
    """Answers by name, from JSON or from what follows it."""
    length = int(reply.headers.get("inference-header-content-length", len(reply.content)))
    said, rest = orjson.loads(reply.content[:length]), reply.content[length:]
    found = {}
    for one in said["outputs"]:
        size = one["parameters"].get("binary_data_size")
        if size is None:
            found[one["name"]] = np.array(one["data"], dtype=object).reshape(one["shape"])
            continue
        part, rest = rest[:size], rest[size:]
        if one["datatype"] == "BYTES":
            texts = []
            while part:
                (n,) = struct.unpack("<I", part[:4])
                texts.append(part[4 : 4 + n].decode())
                part = part[4 + n :]
            found[one["name"]] = np.array(texts, dtype=object).reshape(one["shape"])
        else:
            dtype = {"FP64": "<f8", "INT64": "<i8", "BOOL": "?"}[one["datatype"]]
            found[one["name"]] = np.frombuffer(part, dtype).reshape(one["shape"])
    assert rest == b""
    return found


class TestAnswers:
    """Values of every answer."""

    def test_probabilities_are_those_of_the_model(self, client: Client, model: Any, penguins: pd.DataFrame) -> None:
        reply = client.post(INFER, json={"id": "a-1", "inputs": tensors(records(penguins))})
        said = reply.json()
        assert (said["id"], said["model_name"], said["model_version"]) == ("a-1", "penguins", "1")
        assert [(one["name"], one["datatype"], one["shape"]) for one in said["outputs"]] == [
            ("class", "BYTES", [344]),
            ("proba", "FP64", [344, 3]),
        ]
        assert orjson.loads(said["outputs"][1]["parameters"]["labels"]) == model.classes_.tolist()
        found = values_of(reply)
        assert found["class"].tolist() == model.predict(penguins).tolist()
        np.testing.assert_allclose(found["proba"].astype(float), model.predict_proba(penguins), rtol=1e-12, atol=1e-300)

    @pytest.mark.parametrize("sent_binary", [False, True])
    @pytest.mark.parametrize("binary", [False, True, "all"])
    def test_all_answers(
        self, penguins: pd.DataFrame, utility: po.Utility, sent_binary: bool, binary: bool | str
    ) -> None:
        """Each in JSON and in binary, in the order in which they are asked."""
        layers = po.ConformalClassifier(po.BayesianSoftmaxRegression(), alpha=0.02, random_state=0)
        fitted = make_pipeline(po.TableEncoder(), layers).fit(penguins, "species")
        ask = client_of(app({"penguins": fitted}, utility=utility))
        names = list(reversed(ANSWERS))
        body: dict[str, Any] = {"parameters": {"level": 0.9}, "outputs": [{"name": name} for name in names]}
        if binary == "all":
            body["parameters"]["binary_data_output"] = True
        elif binary:
            for one in body["outputs"]:
                one["parameters"] = {"binary_data": True}
        inputs, content = tensors(records(penguins)), b""
        if sent_binary:
            inputs, content = in_binary(inputs)
        reply = post_binary(ask, body | {"inputs": inputs}, content)
        assert reply.status_code == 200, reply.text
        assert ("inference-header-content-length" in reply.headers) == bool(binary)
        found = values_of(reply)
        assert list(found) == names

        encoded, inner = fitted[0].transform(penguins.drop(columns="species")), fitted[1].estimator_
        P = inner.predict_proba(encoded)
        decided, parts = po.decide(P, utility, classes=inner.classes_), inner.uncertainty(encoded)
        lower, upper = inner.predict_interval(encoded, 0.9)
        expected = {"proba": P, "lower": lower, "upper": upper, "margin": decided.margin} | {
            "total": parts.total,
            "aleatoric": parts.aleatoric,
            "epistemic": parts.epistemic,
            "expected_utility": decided.expected_utility,
            "value_of_information": decided.value_of_information,
        }
        assert found["class"].tolist() == inner.predict(encoded).tolist()
        assert found["action"].tolist() == decided.actions.tolist()
        assert found["set"].tolist() == fitted[1].predict_set(encoded, alpha=0.1).members.tolist()
        for name, values in expected.items():
            np.testing.assert_allclose(found[name].astype(float), values, rtol=1e-12, atol=1e-12, err_msg=name)
        described = {one["name"]: one for one in ask.get("/v2/models/penguins").json()["outputs"]}
        assert list(described) == list(ANSWERS)
        length = int(reply.headers.get("inference-header-content-length", len(reply.content)))
        for one in orjson.loads(reply.content[:length])["outputs"]:
            known = described[one["name"]]
            assert (one["datatype"], one["shape"][1:]) == (known["datatype"], known["shape"][1:])
            assert one["parameters"].get("labels") == known.get("parameters", {}).get("labels")

    @pytest.mark.parametrize("as_text", [False, True])
    def test_a_utility_in_the_request(
        self, client: Client, model: Any, penguins: pd.DataFrame, utility: po.Utility, as_text: bool
    ) -> None:
        given: Any = plain(utility)
        parameters = {"utility": orjson.dumps(given).decode() if as_text else given}
        asked = {"inputs": tensors(records(penguins)), "outputs": [{"name": "action"}], "parameters": parameters}
        found = values_of(client.post(INFER, json=asked))
        decided = po.decide(model.predict_proba(penguins), utility, classes=model.classes_)
        assert found["action"].tolist() == decided.actions.tolist()

    def test_a_single_action_has_no_margin(self, client: Client) -> None:
        one = {"states": ["Gentoo", "Adelie", "Chinstrap"], "actions": [7], "matrix": [[0], [1], [1]]}
        asked = {"inputs": tensors([GOOD]), "parameters": {"utility": one}}
        outputs = [{"name": "margin"}, {"name": "action"}]
        said = client.post(INFER, json=asked | {"outputs": outputs}).json()["outputs"]
        assert [(part["datatype"], part["data"]) for part in said] == [("FP64", [None]), ("INT64", [7])]
        said = client.post(
            INFER, json=asked | {"outputs": outputs, "parameters": {"utility": one, "binary_data_output": True}}
        )
        found = values_of(said)
        assert np.isinf(found["margin"][0])
        assert found["action"].tolist() == [7]

    def test_single_precision_and_whole_numbers(self, client: Client, model: Any) -> None:
        """What single precision has lost is lost, nothing else."""
        given = tensors([GOOD | {"body_mass_g": 4000.0, "bill_length_mm": 40.3}])
        for one in given:
            if one["datatype"] == "FP64":
                kind, dtype = ("INT16", "<i2") if one["name"] in ("year", "body_mass_g") else ("FP32", "<f4")
                one |= {"datatype": kind, "content": np.array(one.pop("data"), dtype).tobytes()}
        content = b"".join(one.get("content", b"") for one in given)
        for one in given:
            if "content" in one:
                one["parameters"] = {"binary_data_size": len(one.pop("content"))}
        found = values_of(post_binary(client, {"inputs": given}, content))
        row = pd.DataFrame([GOOD | {"body_mass_g": 4000.0, "bill_length_mm": float(np.float32(40.3))}])
        np.testing.assert_allclose(found["proba"].astype(float), model.predict_proba(row), rtol=1e-12)

    def test_columns_of_one_and_nested_data(self, client: Client, model: Any, penguins: pd.DataFrame) -> None:
        """Shape [n, 1], flat or in rows, and what MLServer adds that says nothing."""
        given = tensors(records(penguins[:4]))
        for i, one in enumerate(given):
            one["shape"] = [4, 1]
            one["parameters"] = {"content_type": "str" if one["datatype"] == "BYTES" else "np", "headers": None}
            if i % 2:
                one["data"] = [[value] for value in one["data"]]
        body = {"id": None, "inputs": given, "outputs": None, "model_name": "penguins"}
        body["parameters"] = {"content_type": "pd", "headers": {"a": "b"}, "level": None}
        found = values_of(client.post(INFER, json=body))
        np.testing.assert_allclose(
            found["proba"].astype(float), model.predict_proba(penguins[:4]), rtol=1e-12, atol=1e-300
        )

    def test_nan_as_python_writes_it(self, client: Client) -> None:
        body = orjson.dumps({"inputs": tensors([GOOD])})
        assert body.count(b'"data":[null]') == 2
        replies = [client.post(INFER, content=content) for content in (body, body.replace(b"[null]", b"[NaN]"))]
        assert replies[0].json() == replies[1].json()

    def test_new_levels_can_be_accepted(self, client: Client) -> None:
        asked = {"inputs": tensors([GOOD | {"sex": "blue"}, GOOD | {"sex": "red"}])}
        assert client.post(INFER, json=asked).json()["row"] == 1
        reply = client.post(INFER, json=asked | {"parameters": {"new_levels": "accept"}})
        assert "'blue', 'red'" in reply.json()["parameters"]["warnings"]

    def test_many_rows_go_through_threads(self, client: Client, model: Any, penguins: pd.DataFrame) -> None:
        rows = records(penguins) * 12
        reply = client.post(INFER, json={"inputs": tensors(rows)})
        assert len(reply.request.content) > 1 << 17
        assert len(rows) > 1000
        P = np.tile(model.predict_proba(penguins), (12, 1))
        np.testing.assert_allclose(values_of(reply)["proba"].astype(float), P, rtol=1e-12, atol=1e-300)
        body = orjson.dumps({"inputs": tensors(rows)}) + b" " * (1 << 18)
        assert client.post(INFER, content=body).content == reply.content

    def test_together(self, model: Any, penguins: pd.DataFrame) -> None:
        """Requests that come at the same time are predicted together, with those of /predict."""
        import httpx

        application = app({"penguins": model})
        rows = records(penguins)[:20]

        async def all_at_once() -> list[httpx.Response]:
            transport = httpx.ASGITransport(application)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                asked = [client.post(INFER, json={"inputs": tensors([row])}) for row in rows]
                asked += [client.post("/predict", json=[row]) for row in rows]
                return await asyncio.gather(*asked)

        replies = run(all_at_once())
        P = model.predict_proba(penguins[:20])
        for i in range(20):
            np.testing.assert_allclose(values_of(replies[i])["proba"][0].astype(float), P[i], rtol=1e-9)
            said = replies[20 + i].json()["rows"][0]["proba"]
            np.testing.assert_allclose(list(said.values()), P[i], rtol=1e-9)
        text = client_of(application).get("/metrics").text
        assert 'posteriori_rows_total{model="penguins"} 40' in text
        assert 'route="/v2/models/{name}/infer",status="200"} 20' in text


class TestMatrix:
    """A model whose columns have no names takes them in one tensor."""

    @pytest.mark.parametrize("nested", [False, True])
    def test_one_tensor(self, numbers_model: Any, nested: bool) -> None:
        X = np.random.default_rng(1).normal(size=(5, 4))
        ask = client_of(app({"numbers": numbers_model}))
        one = tensor("input-0", X.tolist() if nested else X.ravel().tolist(), shape=[5, 4])
        reply = ask.post("/v2/models/numbers/infer", json={"inputs": [one]})
        found = values_of(reply)
        assert reply.json()["outputs"][0]["datatype"] == "INT64"
        assert found["class"].tolist() == numbers_model.predict(X).tolist()
        np.testing.assert_allclose(found["proba"].astype(float), numbers_model.predict_proba(X), rtol=1e-12)
        columns = [tensor(f"x{d}", X[:, d].tolist()) for d in range(4)]
        assert ask.post("/v2/models/numbers/infer", json={"inputs": columns}).content == reply.content
        about = ask.get("/v2/models/numbers").json()["inputs"]
        assert about == [{"name": "rows", "datatype": "FP64", "shape": [-1, 4]}]

    def test_one_column(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(60, 1))
        fitted = po.SoftmaxRegression().fit(X, X[:, 0] > 0)
        ask = client_of(app({"numbers": fitted}))
        for name, shape in (("x0", [3]), ("x0", [3, 1]), ("input-0", [3]), ("input-0", [3, 1])):
            one = tensor(name, X[:3, 0].tolist(), shape=shape)
            said = ask.post("/v2/models/numbers/infer", json={"inputs": [one]}).json()["outputs"]
            assert (said[0]["datatype"], said[0]["data"]) == ("BOOL", fitted.predict(X[:3]).tolist())
            np.testing.assert_allclose(np.reshape(said[1]["data"], (3, 2)), fitted.predict_proba(X[:3]), rtol=1e-12)

    @pytest.mark.parametrize(
        ("one", "words"),
        [
            (tensor("rows", [1.0] * 6, shape=[2, 3]), "Tensor 'rows' has 3 columns, and the model has 4"),
            (tensor("rows", [[1.0, 2.0], [3.0, 4.0]], shape=[1, 4]), "has shape [1, 4], and rows of another length"),
            (tensor("rows", [1.0, 2.0, 3.0, None], shape=[1, 4]), "Row 1: column 'x3' is missing"),
            (
                tensor("rows", ["a", "b", "c", "d"], "BYTES", shape=[1, 4]),
                "Row 1: column 'x0' holds 'a', where a number",
            ),
            (
                tensor("rows", [1.0] * 6 + ["a", 1.0], shape=[2, 4]),
                "Row 2: tensor 'rows' holds 'a', which is not of its datatype",
            ),
        ],
    )
    def test_refusals(self, numbers_model: Any, one: dict[str, Any], words: str) -> None:
        reply = client_of(app({"numbers": numbers_model})).post("/v2/models/numbers/infer", json={"inputs": [one]})
        assert reply.status_code == 400
        assert words in reply.json()["error"]

    def test_a_model_with_names_takes_columns_alone(self, client: Client) -> None:
        one = tensor("rows", [1.0] * 7, shape=[1, 7])
        reply = client.post(INFER, json={"inputs": [one]})
        assert reply.status_code == 400
        assert "one tensor for each column is needed, of shape [n] or [n, 1], named 'island'" in reply.json()["error"]


class TestLabels:
    """What classes are, as datatypes."""

    @pytest.mark.parametrize(
        ("labels", "datatype"),
        [(["a", "b"], "BYTES"), ([1, 2], "INT64"), ([1.0, 2.0], "FP64"), ([False, True], "BOOL")],
    )
    @pytest.mark.parametrize("binary", [False, True])
    def test_kinds(self, labels: list[Any], datatype: str, binary: bool) -> None:
        X = np.linspace(-1, 1, 40)[:, None]
        fitted = po.SoftmaxRegression().fit(X, np.array(labels)[(X[:, 0] > 0).astype(int)])
        ask = client_of(app({"one": fitted}))
        asked = {"inputs": [tensor("x0", [-1.0, 1.0])], "parameters": {"binary_data_output": binary}}
        reply = ask.post("/v2/models/one/infer", json=asked)
        found = values_of(reply)
        assert found["class"].tolist() == labels
        assert ask.get("/v2/models/one").json()["outputs"][0]["datatype"] == datatype


class TestDescriptions:
    """What the server and its models say of themselves."""

    def test_the_server(self, client: Client) -> None:
        assert client.get("/v2").json() == {
            "name": "posteriori",
            "version": po.__version__,
            "extensions": ["binary_tensor_data", "parameters"],
        }
        assert client.get("/v2/health/live").json() == {"live": True}

    def test_a_model(self, client: Client) -> None:
        said = client.get("/v2/models/penguins").json()
        assert (said["name"], said["versions"]) == ("penguins", ["1"])
        assert said["inputs"][:2] == [
            {"name": "island", "datatype": "BYTES", "shape": [-1]},
            {"name": "bill_length_mm", "datatype": "FP64", "shape": [-1]},
        ]
        assert [one["name"] for one in said["outputs"]] == [
            *("class", "proba", "lower", "upper", "total", "aleatoric", "epistemic"),
        ]

    def test_kinds_of_columns(self) -> None:
        rng = np.random.default_rng(4)
        n = 100
        table = pd.DataFrame(
            {
                "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D"),
                "took": pd.to_timedelta(rng.integers(1, 10**4, n), "s"),
                "ok": rng.random(n) < 0.5,
            }
        )
        y = np.where(table["took"].dt.total_seconds() > 5000, "late", "soon")
        fitted = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(table, y)
        ask = client_of(app({"one": fitted}))
        kinds = {one["name"]: one["datatype"] for one in ask.get("/v2/models/one").json()["inputs"]}
        assert kinds == {"day": "BYTES", "took": "FP64", "ok": "BOOL"}
        some = table[:3]
        inputs = [
            tensor("day", [day.isoformat() for day in some["day"]], "BYTES"),
            tensor("took", some["took"].dt.total_seconds().tolist()),
            tensor("ok", some["ok"].tolist(), "BOOL"),
        ]
        found = values_of(ask.post("/v2/models/one/infer", json={"inputs": inputs}))
        np.testing.assert_allclose(found["proba"].astype(float), fitted.predict_proba(some), rtol=1e-12)

    def test_versions(self, tmp_path: Path, model: Any, penguins: pd.DataFrame) -> None:
        old = make_pipeline(po.TableEncoder(), po.SoftmaxRegression(alpha=100.0)).fit(penguins, "species")
        po.save(old, tmp_path / "old.model")
        po.save(model, tmp_path / "new.model")
        ask = client_of(app([f"birds@1={tmp_path}/old.model", f"birds@2={tmp_path}/new.model"]))
        assert ask.get("/v2/models/birds/versions/1").json()["versions"] == ["1", "2"]
        assert [one["name"] for one in ask.get("/v2/models/birds/versions/1").json()["outputs"]] == ["class", "proba"]
        asked = {"inputs": tensors(records(penguins))}
        for path, version, fitted in (("", "2", model), ("/versions/1", "1", old), ("/versions/2", "2", model)):
            reply = ask.post(f"/v2/models/birds{path}/infer", json=asked)
            assert reply.json()["model_version"] == version
            P = fitted.predict_proba(penguins)
            np.testing.assert_allclose(values_of(reply)["proba"].astype(float), P, rtol=1e-12, atol=1e-300)
        for path in ("", "/ready"):
            assert ask.get(f"/v2/models/birds/versions/1{path}").status_code == 200
            assert ask.get(f"/v2/models/birds/versions/3{path}").status_code == 404
            assert ask.get(f"/v2/models/cats{path}").status_code == 404
        assert ask.post("/v2/models/birds/versions/3/infer", json=asked).status_code == 404
        assert ask.get("/v2/models/birds/infer").status_code == 405


class TestReadiness:
    """Ready until the end begins."""

    def test_until_it_is_closed(self, model: Any) -> None:
        application = app({"penguins": model})
        ask = client_of(application)
        paths = ("/v2/health/ready", "/v2/models/penguins/ready", "/ping", "/health")
        assert [ask.get(path).status_code for path in paths] == [200] * 4
        assert ask.get("/v2/health/ready").json() == {"ready": True}
        application.close()
        assert [ask.get(path).status_code for path in paths] == [503] * 4
        assert ask.get("/v2/health/ready").json() == {"ready": False}
        assert ask.get("/v2/models/penguins/ready").json() == {"name": "penguins", "ready": False}
        assert ask.get("/v2/health/live").status_code == 200
        assert ask.post(INFER, json={"inputs": tensors([GOOD])}).status_code == 200

    def test_health_needs_no_token(self, model: Any) -> None:
        ask = client_of(app({"penguins": model}, token="0123456789abcdef"))
        assert [ask.get(path).status_code for path in ("/v2/health/live", "/v2/health/ready")] == [200, 200]
        assert [ask.get(path).status_code for path in ("/v2", "/v2/models/penguins")] == [401, 401]
        assert ask.post(INFER, json={"inputs": tensors([GOOD])}).status_code == 401

    @pytest.mark.slow
    def test_a_server_that_ends(self, model_file: Path) -> None:
        """On a connection that is open already; others find none."""
        with serving(str(model_file), "--log-level", "warning") as process:
            connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=10)

            def ready() -> int:
                connection.request("GET", "/v2/health/ready")
                reply = connection.getresponse()
                reply.read()
                return reply.status

            assert ready() == 200
            process.process.send_signal(signal.SIGTERM)
            found, end = 200, time.monotonic() + 5
            connection.auto_open = False
            while found == 200 and time.monotonic() < end:
                found = ready()
            assert found == 503
            connection.close()
            assert process.process.wait(20) == 0


class TestRefusals:
    """What is wrong is said in one sentence."""

    @pytest.mark.parametrize(
        ("change", "sentence", "row", "column"),
        [
            ({"sex": "blue"}, "did not occur in the fit, in 1 row: 'blue'", 2, "sex"),
            (
                {"sex": 3},
                "Row 2: tensor 'sex' holds 3, which is not of its datatype BYTES",
                2,
                "sex",
            ),
            ({"body_mass_g": "big"}, "Row 2: tensor 'body_mass_g' holds 'big'", 2, "body_mass_g"),
            ({"body_mass_g": [1]}, "Row 2: tensor 'body_mass_g' holds [1]", 2, "body_mass_g"),
            ({"year": True}, "Row 2: tensor 'year' holds True", 2, "year"),
            ({"colour": 1}, "column 'colour' is unknown: the model has the columns 'island'", None, "colour"),
        ],
    )
    def test_values(self, client: Client, change: dict[str, Any], sentence: str, row: int | None, column: str) -> None:
        first = GOOD | dict.fromkeys(change.keys() - GOOD.keys(), 0)
        reply = client.post(INFER, json={"inputs": tensors([first, GOOD | change])})
        assert reply.status_code == 400
        assert sentence in reply.json()["error"]
        assert (reply.json().get("row"), reply.json()["column"]) == (row, column)

    def test_text_where_a_number_is_due(self, client: Client) -> None:
        """In the words of /predict."""
        given = [one for one in tensors([GOOD]) if one["name"] != "year"]
        said = client.post(INFER, json={"inputs": [*given, tensor("year", ["x"], "BYTES")]}).json()
        assert said == client.post("/predict", json=[GOOD | {"year": "x"}]).json()

    def test_a_column_is_missing(self, client: Client) -> None:
        reply = client.post(INFER, json={"inputs": tensors([GOOD])[:-1]})
        assert (reply.status_code, reply.json()["column"]) == (400, "year")

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"name": 3}, "must be an object with name, datatype, shape and data"),
            ({"name": "island"}, "Several tensors are called 'island'"),
            ({"shape": [2]}, "Tensor 'year' has 1 values, and its shape [2] needs 2"),
            ({"shape": []}, "has shape []"),
            ({"shape": [-1]}, "has shape [-1]"),
            ({"shape": [True]}, "has shape [True]"),
            ({"shape": [1, 1, 1]}, "has shape [1, 1, 1]"),
            ({"shape": "1"}, "has shape '1'"),
            ({"shape": [1, 2], "data": [[1, 2]]}, "one tensor for each column is needed"),
            ({"shape": [2], "data": [1, 2]}, "Columns have different numbers of values"),
            ({"datatype": "BF16"}, "datatype 'BF16', which is not read here"),
            ({"datatype": ["FP64"]}, "datatype ['FP64'], which is not read here"),
            ({"datatype": "INT32", "data": [1.5]}, "holds 1.5, which is not of its datatype"),
            ({"data": None}, "no list of data"),
            ({"data": {"a": 1}}, "no list of data"),
            ({"data": [[1], 2], "shape": [2, 1]}, "rows of another length"),
            ({"parameters": {"shared_memory_region": "a"}}, "'shared_memory_region', which is not read here"),
            ({"parameters": [1]}, "which is not read here"),
            ({"parameters": {"content_type": "base64"}}, "content_type 'base64', which is not read here"),
            ({"parameters": {"content_type": ["np"]}}, "which is not read here"),
            ({"parameters": {"binary_data_size": -1}}, "must be a number of bytes"),
            ({"parameters": {"binary_data_size": True}}, "must be a number of bytes"),
            ({"parameters": {"binary_data_size": 8}}, "is 8: only 0 bytes follow"),
        ],
    )
    def test_tensors(self, client: Client, change: dict[str, Any], words: str) -> None:
        *others, last = tensors([GOOD])
        reply = client.post(INFER, json={"inputs": [*others, last | change]})
        assert reply.status_code == 400
        assert words in reply.json()["error"], reply.text

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"inputs": None}, "inputs must be a list of tensors"),
            ({"inputs": []}, "inputs must be a list of tensors"),
            ({"inputs": [3]}, "must be an object with name"),
            ({"inputs": {}}, "inputs must be a list of tensors"),
            ({"id": 3}, "id must be text, got 3"),
            ({"rows": []}, "'rows' in the body is unknown"),
            ({"model_name": "cats"}, "model_name in the body is 'cats', and the address names 'penguins'"),
            ({"parameters": [1]}, "parameters must be an object"),
            ({"parameters": {"levle": 0.5}}, "The parameter 'levle' is unknown"),
            ({"parameters": {"sequence_id": 5}}, "The parameter 'sequence_id' is unknown"),
            ({"parameters": {"level": 2}}, "between 0 and 1"),
            ({"parameters": {"new_levels": "perhaps"}}, "'refuse' or 'accept'"),
            ({"parameters": {"utility": "{"}}, "not JSON"),
            ({"parameters": {"utility": 3}}, "utility must be an object"),
            ({"parameters": {"content_type": "base64"}}, "content_type is 'base64', which is not read here"),
            ({"parameters": {"content_type": ["np"]}}, "content_type is ['np'], which is not read here"),
            ({"parameters": {"binary_data_output": 1}}, "binary_data_output must be true or false"),
            ({"outputs": {"name": "class"}}, "outputs must be a list of objects"),
            ({"outputs": ["class"]}, "outputs must be a list of objects"),
            ({"outputs": [{"name": "colour"}]}, "'colour', which is none"),
            ({"outputs": [{"name": "set"}]}, "prediction sets need a ConformalClassifier"),
            ({"outputs": [{"name": "action"}]}, "decisions need a utility"),
            ({"outputs": [{"name": "class", "parameters": {"classification": 2}}]}, "the parameter 'classification'"),
            ({"outputs": [{"name": "class", "parameters": [2]}]}, "parameters of output 'class' must be an object"),
            ({"outputs": [{"name": "class", "parameters": {"binary_data": 1}}]}, "must be true or false"),
        ],
    )
    def test_requests(self, client: Client, change: dict[str, Any], words: str) -> None:
        reply = client.post(INFER, json={"inputs": tensors([GOOD])} | change)
        assert reply.status_code == 400
        assert words in reply.json()["error"], reply.text
        assert reply.json()["error"].endswith((".", "!"))

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "The body is empty"),
            (b"{", "not JSON"),
            (b"{NaN", "not JSON"),
            (b"[" * 100_000 + b"NaN", "not JSON"),
            (b"[]", "must be an object"),
            (b"3", "must be an object"),
            (b'{"id": "\\ud800", "inputs": NaN}', "not JSON"),
            (b'{"id": "1", "inputs": [NaN, 1000000000000000000000000000000]}', "not JSON"),
            (b"\xff\xfe", "not JSON"),
        ],
    )
    def test_bodies(self, client: Client, content: bytes, words: str) -> None:
        reply = client.post(INFER, content=content)
        assert reply.status_code == 400
        assert words in reply.json()["error"], reply.text

    @pytest.mark.parametrize("length", ["-1", "a", "100000", "", "²"])
    def test_lengths_of_the_json(self, client: Client, length: str) -> None:
        body = orjson.dumps({"inputs": tensors([GOOD])})
        headers = {"Inference-Header-Content-Length": length.encode("latin-1")}
        reply = client.post(INFER, content=body, headers=headers)
        assert reply.status_code == 400
        assert "the number of bytes of JSON is needed" in reply.json()["error"]

    @pytest.mark.parametrize(
        ("name", "size", "content", "words"),
        [
            ("year", 8, b"1234567", "is 8: only 7 bytes follow"),
            ("year", 8, b"123456789", "1 bytes after the JSON belong to no tensor"),
            (
                "year",
                7,
                b"1234567",
                "The 7 bytes of tensor 'year' are not the values of FP64 that its shape [1] needs",
            ),
            ("year", 16, b"1234567812345678", "The 16 bytes of tensor 'year' are not the values"),
            ("sex", 8, b"\x00" * 8, "are not the values of BYTES"),
            ("sex", 3, b"\x01\x00\x00", "are not the values of BYTES"),
            ("sex", 5, b"\x02\x00\x00\x00a", "are not the values of BYTES"),
            ("sex", 5, b"\x01\x00\x00\x00\xff", "are not the values of BYTES"),
            ("sex", 8, b"\xff\xff\xff\xffaaaa", "are not the values of BYTES"),
        ],
    )
    def test_bytes(self, client: Client, name: str, size: int, content: bytes, words: str) -> None:
        inputs = tensors([GOOD])
        for one in inputs:
            if one["name"] == name:
                del one["data"]
                one["parameters"] = {"binary_data_size": size}
        reply = post_binary(client, {"inputs": inputs}, content)
        assert reply.status_code == 400
        assert words in reply.json()["error"], reply.text

    def test_numbers_that_are_not_finite(self, client: Client) -> None:
        inputs, content = in_binary(tensors([GOOD, GOOD | {"body_mass_g": np.inf}]))
        reply = post_binary(client, {"inputs": inputs}, content)
        assert (reply.status_code, reply.json()["row"], reply.json()["column"]) == (400, 2, "body_mass_g")

    def test_compressed_bodies(self, client: Client) -> None:
        reply = client.post(INFER, content=b"\x1f\x8b", headers={"content-encoding": "gzip"})
        assert (reply.status_code, "must not be compressed" in reply.json()["error"]) == (415, True)

    def test_too_many_rows_or_columns(self, model: Any) -> None:
        ask = client_of(app({"penguins": model}, limits=Limits(rows=10, columns=8)))
        assert ask.post(INFER, json={"inputs": tensors([GOOD] * 10)}).status_code == 200
        reply = ask.post(INFER, json={"inputs": tensors([GOOD] * 11)})
        assert (reply.status_code, "at most 10 are taken" in reply.json()["error"]) == (413, True)
        reply = ask.post(INFER, json={"inputs": [tensor("a", [1.0])] * 9})
        assert (reply.status_code, "9 columns" in reply.json()["error"]) == (413, True)
        assert ask.post(INFER, json={"inputs": [tensor("a", [], shape=[0])]}).status_code == 400
        assert (
            "no rows"
            in ask.post(
                INFER,
                json={"inputs": tensors([GOOD])[:0] or [one | {"shape": [0], "data": []} for one in tensors([GOOD])]},
            ).json()["error"]
        )
