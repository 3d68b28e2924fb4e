"""Probabilities along one column: what a model would say of a row if one of its values were another."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from posteriori.parameters import first_names
from posteriori.serve.answers import INTERVALS, asked
from posteriori.serve.bodies import JSON, json_value
from posteriori.serve.desk import desk_of, options_of
from posteriori.serve.errors import Refusal
from posteriori.serve.guard import body_of
from posteriori.serve.model_columns import ModelColumn
from posteriori.serve.rows import joined, of_records

__all__ = ["ROUTES", "values_along"]

MOST_POINTS = 1_000
_POINTS = 101
_EXACT = 2.0**53
"""Larger numbers are not written as integers: as floats they are not exact, and JSON's readers may not take them."""
_NEEDED, _KNOWN = ("row", "column"), ("row", "column", "points", "level", "new_levels")


async def curve(request: Request) -> Response:
    """Answer a row with many values of one column."""
    desk = desk_of(request)
    query = options_of(request, ("model", "version"))
    model = desk.shelf.get(query.get("model"), query.get("version"))
    given = _checked(json_value(body_of(request.scope)))
    column = next((one for one in model.columns if one.name == given["column"]), None)
    if column is None:
        known = first_names([one.name for one in model.columns], 20)
        raise Refusal(f"Column {str(given['column'])[:100]!r} is unknown: the model has the columns {known}.")
    answers = [name for name in ("proba", *INTERVALS) if name in model.answers]
    wanted = asked(answers, given.get("level"), None, given.get("new_levels"), possible=model.answers)
    row = of_records([given["row"]], model.columns, model.ignored)
    x = values_along(column, row.columns[column.name][0], _points(given.get("points", _POINTS)))
    varied = of_records([given["row"] | {column.name: value} for value in x], model.columns, model.ignored)
    found = await desk.batcher.answer(model, joined([row, varied]), wanted)  # what is wrong with the row is said of it
    values = {name: value[1:].tolist() for name, value in found.values.items()}
    request.scope["posteriori.noted"] = {"model": model.name, "version": model.version}
    return Response(orjson.dumps({"column": column.name, "kind": column.kind, "x": x} | values), media_type=JSON)


ROUTES = [Route("/page/curve", curve, methods=["POST"])]


def _checked(given: Any) -> dict[str, Any]:
    """The object in the body, with "row" and "column"."""
    if not isinstance(given, dict) or any(name not in given for name in _NEEDED):
        raise Refusal('The body must be an object with "row" (an object with a value for every column) and "column".')
    unknown = [name for name in given if name not in _KNOWN]
    if unknown:
        raise Refusal(f"{unknown[0][:50]!r} is unknown here: use {', '.join(_KNOWN)}.")
    return given


def _points(given: Any) -> int:
    if type(given) is not int or not 2 <= given <= MOST_POINTS:
        raise Refusal(f"points is {str(given)[:50]}: a whole number from 2 to {MOST_POINTS} is needed.")
    return given


def values_along(column: ModelColumn, value: Any, points: int) -> list[Any]:
    """Values of JSON for a column: its range in the fit, widened to hold the value of the row, which is among them.

    Parameters
    ----------
    column : ModelColumn
    value : checked value of the row, or None if it is missing

    Examples
    --------
    >>> values_along(ModelColumn("mass", "number", low=0.0, high=1.0), 1.5, 4)
    [0.0, 0.5, 1.0, 1.5]
    >>> values_along(ModelColumn("sex", "category", levels=("f", "m")), None, 4)
    ['f', 'm']
    """
    if column.kind == "boolean":
        return [False, True]
    if column.kind == "category":
        return [*column.levels, *([] if value is None or value in column.levels else [value])]
    if column.kind.startswith("date"):
        return _moments(column, value, points)
    return _numbers(column, value, points)


def _numbers(column: ModelColumn, value: float | None, points: int) -> list[float]:
    low, high = _range(column, value)
    grid = np.linspace(low, high, points)
    whole = column.described()["integer"]
    numbers = np.union1d(np.round(grid) if whole else grid, [] if value is None else [value])
    return [int(x) if whole and x.is_integer() and abs(x) < _EXACT else x for x in numbers.tolist()]


def _range(column: ModelColumn, value: float | None) -> tuple[float, float]:
    """The range in the fit; where it is not known, some way to both sides of the value."""
    if column.low is None or column.high is None:
        middle = 0.0 if value is None else value
        return middle - max(1.0, abs(middle)), middle + max(1.0, abs(middle))
    return (column.low, column.high) if value is None else (min(column.low, value), max(column.high, value))


def _moments(column: ModelColumn, value: str | None, points: int) -> list[str]:
    """Moments to the second, in order."""
    own = {} if value is None else {column.array([value]).cast(pa.int64())[0].as_py() / 1e6: value}
    low, high = _range(column, next(iter(own), None))
    grid = np.unique(np.round(np.linspace(low, high, points)))
    texts = {seconds: column.moment(seconds) for seconds in grid.tolist()} | own
    return [text for _, text in sorted(texts.items()) if text is not None]
