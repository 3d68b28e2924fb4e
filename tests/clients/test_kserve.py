"""KServe's client, KServe's own InferRequest and InferResponse: in JSON and in binary."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from kserve import InferenceRESTClient, InferInput, InferRequest, InferResponse, RESTConfig
from kserve.protocol.infer_type import RequestedOutput


def ask(call: Callable[[InferenceRESTClient], Awaitable[Any]]) -> Any:
    async def with_client() -> Any:
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            return await call(client)

    return asyncio.run(with_client())


def inputs_of(rows: pd.DataFrame, binary: bool) -> list[InferInput]:
    found = []
    for name in rows:
        is_text = name in ("island", "sex")
        one = InferInput(name, [len(rows)], "BYTES" if is_text else "FP64")
        if is_text:
            values = rows[name].where(rows[name].notna(), "" if binary else None)
            if binary:
                one.set_data_from_numpy(values.to_numpy(dtype=object), binary_data=True)
            else:
                one.data = values.tolist()
        elif binary:
            one.set_data_from_numpy(rows[name].to_numpy(dtype=np.float64), binary_data=True)
        else:
            one.data = rows[name].astype(float).tolist()
        found.append(one)
    return found


def infer(url: str, request: InferRequest, model: str = "penguins") -> InferResponse:
    return ask(lambda client: client.infer(url, request, model_name=model))


def test_health(server: Any) -> None:
    assert ask(lambda client: client.is_server_live(server.url)) is True
    assert ask(lambda client: client.is_server_ready(server.url)) is True
    assert ask(lambda client: client.is_model_ready(server.url, "penguins")) is True
    assert ask(lambda client: client.is_model_ready(server.url, "cats")) is False


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
def test_answers(server: Any, rows: pd.DataFrame, said: dict[str, Any], binary: bool, binary_out: bool) -> None:
    names = ("class", "proba", "lower", "upper", "total")
    request = InferRequest(
        "penguins",
        inputs_of(rows, binary),
        request_id="a-42",
        parameters={"level": said["level"]},
        request_outputs=[RequestedOutput(name, {"binary_data": binary_out}) for name in names],
    )
    found = infer(server.url, request)
    assert (found.id, found.model_name) == ("a-42", "penguins")
    assert [output.name for output in found.outputs] == list(names)
    labels = found.get_output_by_name("class").as_numpy().tolist()
    assert [label.decode() if type(label) is bytes else label for label in labels] == said["class"]
    for name in names[1:]:
        np.testing.assert_allclose(found.get_output_by_name(name).as_numpy(), said[name], rtol=1e-12, atol=1e-300)


def test_a_matrix(server: Any, said: dict[str, Any]) -> None:
    one = InferInput("input-0", [5, 4], "FP64")
    one.set_data_from_numpy(np.array(said["matrix"]), binary_data=False)
    found = infer(server.url, InferRequest("matrix", [one]), "matrix")
    assert found.get_output_by_name("class").as_numpy().tolist() == said["matrix class"]
    np.testing.assert_allclose(found.get_output_by_name("proba").as_numpy(), said["matrix proba"], rtol=1e-12)


def test_errors(server: Any, rows: pd.DataFrame) -> None:
    inputs = inputs_of(rows, binary=False)
    inputs[5].data = ["blue", *inputs[5].data[1:]]
    with pytest.raises(httpx.HTTPStatusError, match=r"Row 1: .*'sex'.*'blue'.*, '400 Bad Request'"):
        infer(server.url, InferRequest("penguins", inputs))
    with pytest.raises(httpx.HTTPStatusError, match=r"There is no model 'cats'.*'404 Not Found'"):
        infer(server.url, InferRequest("cats", inputs), "cats")
