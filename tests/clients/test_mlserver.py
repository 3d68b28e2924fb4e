"""MLServer's types and codecs: what its clients send, and how they read an answer."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

types = pytest.importorskip("mlserver.types", reason="MLServer needs Python before 3.13")
codecs = pytest.importorskip("mlserver.codecs")


def infer(url: str, model: str, request: Any) -> Any:
    headers = {"content-type": "application/json"}
    reply = httpx.post(f"{url}/v2/models/{model}/infer", content=request.model_dump_json(), headers=headers)
    if reply.status_code != 200:
        return types.InferenceErrorResponse.model_validate_json(reply.content)
    return types.InferenceResponse.model_validate_json(reply.content)


@pytest.mark.parametrize("use_bytes", [False, True])
def test_a_table(server: Any, rows: pd.DataFrame, said: dict[str, Any], use_bytes: bool) -> None:
    """As its PandasCodec writes it, which fails at text with missing values."""
    whole = rows[rows["sex"].notna()]
    request = codecs.PandasCodec.encode_request(whole, use_bytes=use_bytes)
    request.id = "42"
    request.outputs = [types.RequestOutput(name=name) for name in ("class", "total")]
    response = infer(server.url, "penguins", request)
    assert (response.id, response.model_name, response.model_version) == ("42", "penguins", "2")
    table = codecs.PandasCodec.decode_response(response)
    assert table["class"].tolist() == [said["class"][i] for i in whole.index]
    np.testing.assert_allclose(table["total"], [said["total"][i] for i in whole.index], rtol=1e-12)


def test_single_codecs(server: Any, rows: pd.DataFrame, said: dict[str, Any]) -> None:
    inputs = [
        codecs.StringCodec.encode_input(name, rows[name].tolist(), use_bytes=False)
        if name in ("island", "sex")
        else codecs.NumpyCodec.encode_input(name, rows[name].to_numpy())
        for name in rows
    ]
    response = infer(server.url, "penguins", types.InferenceRequest(inputs=inputs))
    labels, P = response.outputs
    assert codecs.StringCodec.decode_output(labels) == said["class"]
    np.testing.assert_allclose(codecs.NumpyCodec.decode_output(P), said["proba"], rtol=1e-12, atol=1e-300)


def test_a_matrix(server: Any, said: dict[str, Any]) -> None:
    request = codecs.NumpyRequestCodec.encode_request(np.array(said["matrix"]))
    request.outputs = [types.RequestOutput(name="class")]
    response = infer(server.url, "matrix", request)
    assert codecs.NumpyRequestCodec.decode_response(response).tolist() == said["matrix class"]


def test_descriptions(server: Any) -> None:
    model = types.MetadataModelResponse.model_validate_json(httpx.get(f"{server.url}/v2/models/penguins").content)
    assert model.versions == ["1", "2"]
    assert [tensor.name for tensor in model.inputs][:2] == ["island", "bill_length_mm"]
    assert model.outputs[1].parameters.labels == '["Adelie","Chinstrap","Gentoo"]'
    server_said = types.MetadataServerResponse.model_validate_json(httpx.get(f"{server.url}/v2").content)
    assert server_said.name == "posteriori"


def test_errors(server: Any, rows: pd.DataFrame) -> None:
    request = codecs.PandasCodec.encode_request(rows[["year"]].assign(colour=1.0))
    assert "column 'colour' is unknown" in infer(server.url, "penguins", request).error
