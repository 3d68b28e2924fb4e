"""Good requests with something strange in them, at random, are answered or refused: the server does not fail."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.serve.asgi import Client, client_of
from tests.serve.test_inference import tensors
from tests.serve.test_plain import GOOD, plain
from tests.slow import quick_first

import posteriori as po
from posteriori.serve import app

STRANGE: list[Any] = [
    *(None, True, False, 0, -1, 2, 2**63, -(2**63), 10**30, 1.5, 1e308, -0.0, float("nan"), float("inf")),
    *("", "a", "1", "NaN", "\x00", "é" * 50, "FP64", "BYTES"),
    *([], {}, [None], [[]], {"a": 1}, [1, 2, 3], [1], ["a"], {"name": "x"}),
]
KEYS = ("a", "", "name", "data", "shape", "binary_data_size", "params", "level")


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands within a value of JSON."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*above, key)
        yield from places(one, (*above, key))


def changed(value: Any, chance: random.Random) -> Any:
    """A value with one to three places changed, left out or added to."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        *way, key = chance.choice([*places(value)] or [("a",)])
        inner = value
        for step in way:
            inner = inner[step]
        what = chance.random()
        if what < 0.7:
            inner[key] = chance.choice(STRANGE)
        elif what < 0.85 and inner:
            del inner[key]
        elif isinstance(inner, dict):
            inner[chance.choice(KEYS)] = chance.choice(STRANGE)
        else:
            inner.append(copy.deepcopy(chance.choice(STRANGE)))
    return value


def requests(utility: po.Utility) -> list[tuple[str, Any]]:
    options = {"answers": ["class", "action"], "utility": plain(utility), "level": 0.3, "new_levels": "accept"}
    columns = {name: [value] for name, value in GOOD.items()}
    asked = {"id": "1", "parameters": {name: value for name, value in options.items() if name != "answers"}}
    outputs = [{"name": "class", "parameters": {"binary_data": True}}, {"name": "expected_utility"}]
    matrix = [[1, 2, 3, 4.5], [1, 2, 3, 4.5]]
    one = {"name": "rows", "datatype": "FP64", "shape": [2, 4], "data": matrix}
    return [
        ("/predict?model=penguins", {"rows": [GOOD, GOOD]} | options),
        ("/predict?model=numbers", [{f"x{d}": value for d, value in enumerate(matrix[0])}]),
        ("/v2/models/penguins/infer", {"inputs": tensors([GOOD]), "outputs": outputs} | asked),
        ("/v2/models/numbers/infer", {"inputs": [one]}),
        ("/invocations?model=penguins", {"dataframe_records": [GOOD, GOOD], "params": options}),
        ("/invocations?model=penguins", {"dataframe_split": {"columns": list(GOOD), "data": [list(GOOD.values())]}}),
        ("/invocations", {"inputs": columns, "params": {"model": "penguins"}}),
        ("/invocations?model=numbers", {"instances": matrix}),
        ("/invocations?model=numbers", {"dataframe_split": {"columns": [0, 1, 2, 3], "data": matrix}}),
    ]


@pytest.fixture
def both(model: Any, numbers_model: Any) -> Client:
    return client_of(app({"penguins": model, "numbers": numbers_model}))


def test_unchanged_they_are_answered(both: Client, utility: po.Utility) -> None:
    for path, body in requests(utility):
        assert both.post(path, json=body).status_code == 200, path


@pytest.mark.parametrize("seed", quick_first(range(8)))
def test_changed_they_are_answered_or_refused(both: Client, utility: po.Utility, seed: int) -> None:
    chance, found = random.Random(seed), Counter[int]()
    for path, body in requests(utility) * 25:
        content = json.dumps(changed(body, chance)).encode()
        headers = {"content-type": "application/json"}
        if path.endswith("/infer") and chance.random() < 0.2:
            headers["inference-header-content-length"] = str(len(content))
            content += chance.randbytes(chance.randrange(12))
        reply = both.post(path, content=content, headers=headers)
        found[reply.status_code] += 1
        assert reply.status_code in (200, 400, 404, 413), (path, content)
        if reply.status_code != 200:
            assert reply.json()["error"].endswith((".", "?", "!")), reply.text
    assert found[200] > 10
    assert found[400] > 100
