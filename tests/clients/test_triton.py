"""NVIDIA's client for Triton over HTTP: binary tensors, which it prefers, and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


@pytest.fixture
def client(server: Any) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as found:
        yield found


def inputs_of(rows: pd.DataFrame, binary: bool, kind: str = "FP64") -> list[triton.InferInput]:
    found = []
    for name in rows:
        is_text = name in ("island", "sex")
        if is_text:
            values = rows[name].where(rows[name].notna(), "").to_numpy(dtype=object)
        else:
            values = rows[name].to_numpy(dtype={"FP64": np.float64, "FP32": np.float32}[kind])
        one = triton.InferInput(name, list(values.shape), "BYTES" if is_text else kind)
        one.set_data_from_numpy(values, binary_data=binary)
        found.append(one)
    return found


def text_of(values: np.ndarray) -> list[str]:
    return [value.decode() if type(value) is bytes else value for value in values.tolist()]


def test_what_the_server_says_of_itself(client: triton.InferenceServerClient, said: dict[str, Any]) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("penguins")
    assert client.is_model_ready("penguins", "1")
    assert not client.is_model_ready("penguins", "3")
    about = client.get_server_metadata()
    assert (about["name"], about["version"]) == ("posteriori", said["version"])
    assert "binary_tensor_data" in about["extensions"]
    found = client.get_model_metadata("penguins")
    assert found["versions"] == ["1", "2"]
    kinds = {tensor["name"]: tensor["datatype"] for tensor in found["inputs"]}
    assert kinds == {"island": "BYTES", "sex": "BYTES"} | dict.fromkeys(
        ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "year"], "FP64"
    )
    shapes = {tensor["name"]: (tensor["datatype"], tensor["shape"]) for tensor in found["outputs"]}
    assert shapes["class"] == ("BYTES", [-1])
    assert shapes["proba"] == ("FP64", [-1, 3])


def test_all_in_binary(client: triton.InferenceServerClient, rows: pd.DataFrame, said: dict[str, Any]) -> None:
    found = client.infer("penguins", inputs_of(rows, binary=True), request_id="7")
    response = found.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("7", "penguins", "2")
    assert all("data" not in output for output in response["outputs"])
    assert text_of(found.as_numpy("class")) == said["class"]
    np.testing.assert_allclose(found.as_numpy("proba"), said["proba"], rtol=1e-12, atol=1e-300)


def test_versions(client: triton.InferenceServerClient, rows: pd.DataFrame, said: dict[str, Any]) -> None:
    found = client.infer("penguins", inputs_of(rows, binary=True), model_version="1")
    assert found.get_response()["model_version"] == "1"
    np.testing.assert_allclose(found.as_numpy("proba"), said["old proba"], rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
def test_answers(
    client: triton.InferenceServerClient, rows: pd.DataFrame, said: dict[str, Any], binary: bool, binary_out: bool
) -> None:
    whole = rows[rows["sex"].notna()]  # in JSON this client cannot say that text is missing
    names = ("action", "expected_utility", "lower")
    found = client.infer(
        "penguins",
        inputs_of(whole, binary),
        outputs=[triton.InferRequestedOutput(name, binary_data=binary_out) for name in names],
        parameters={"utility": str(said["utility"]).replace("'", '"'), "level": str(said["level"])},
    )
    for name, known in zip(names, ("action", "expected utility", "lower"), strict=True):
        expected = [said[known][i] for i in whole.index]
        if name == "action":
            assert text_of(found.as_numpy(name)) == expected
        else:
            np.testing.assert_allclose(found.as_numpy(name), expected, rtol=1e-9, atol=1e-12)


def test_missing_numbers_as_this_client_writes_them_in_json(
    client: triton.InferenceServerClient, rows: pd.DataFrame, said: dict[str, Any]
) -> None:
    """NaN, which is not JSON."""
    some = rows[rows["sex"].notna()].copy()
    some.loc[some.index[0], "body_mass_g"] = np.nan
    outputs = [triton.InferRequestedOutput("proba", binary_data=False)]
    in_json = client.infer("penguins", inputs_of(some, binary=False), outputs=outputs).as_numpy("proba")
    in_binary = client.infer("penguins", inputs_of(some, binary=True), outputs=outputs).as_numpy("proba")
    np.testing.assert_array_equal(in_json, in_binary)
    np.testing.assert_allclose(in_json[1:], [said["proba"][i] for i in some.index[1:]], rtol=1e-12, atol=1e-300)
    assert not np.allclose(in_json[0], said["proba"][some.index[0]], rtol=1e-6)


def test_numbers_of_single_precision(
    client: triton.InferenceServerClient, rows: pd.DataFrame, said: dict[str, Any]
) -> None:
    found = client.infer("penguins", inputs_of(rows, binary=True, kind="FP32")).as_numpy("proba")
    np.testing.assert_allclose(found, said["proba"], rtol=1e-4)


def test_a_matrix(client: triton.InferenceServerClient, said: dict[str, Any]) -> None:
    one = triton.InferInput("rows", [5, 4], "FP64")
    one.set_data_from_numpy(np.array(said["matrix"]))
    found = client.infer("matrix", [one])
    assert found.as_numpy("class").tolist() == said["matrix class"]
    np.testing.assert_allclose(found.as_numpy("proba"), said["matrix proba"], rtol=1e-12)


def test_errors(client: triton.InferenceServerClient, rows: pd.DataFrame) -> None:
    with pytest.raises(InferenceServerException, match="column 'year' is missing") as raised:
        client.infer("penguins", inputs_of(rows, binary=True)[:-1])
    assert raised.value.status() == "400"
    with pytest.raises(InferenceServerException, match="must not be compressed"):
        client.infer("penguins", inputs_of(rows, binary=True), request_compression_algorithm="gzip")
    shared = triton.InferInput("year", [1], "FP64").set_shared_memory("region", 8)
    with pytest.raises(InferenceServerException, match="'shared_memory_region', which is not read here"):
        client.infer("penguins", [shared])
