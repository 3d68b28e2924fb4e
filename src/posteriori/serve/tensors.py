"""Tensors of the Open Inference Protocol: name, shape, datatype and values, in JSON or in binary.

A tensor of the binary extension has no "data" in JSON; its bytes follow the JSON, as many as its parameter
binary_data_size says: numbers little-endian, each BYTES value after its length in four bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson

from posteriori.parameters import first_names
from posteriori.serve.answers import BY_ACTION, Answers
from posteriori.serve.bodies import Bounds
from posteriori.serve.errors import Refusal

__all__ = ["CONTENT_TYPES", "ReadTensor", "datatype_of", "read_tensors", "written"]

CONTENT_TYPES = ("np", "str", "pd")
"""How MLServer's clients say what is in a tensor: numbers, text, a table. The datatype says it already."""


@dataclass(frozen=True)
class Datatype:
    """What the values of a tensor are.

    Attributes
    ----------
    name : str
    kinds : frozenset of type
        Kinds of its values of JSON; null, a missing value, is one.
    dtype : numpy.dtype or None
        In binary; None is text.
    """

    name: str
    kinds: frozenset[type]
    dtype: np.dtype | None

    def unpacked(self, content: bytes, n: int) -> list[Any]:
        """The n values in these bytes; ValueError if there are more or fewer."""
        if self.dtype is None:
            return _unpacked_text(content, n)
        if len(content) != n * self.dtype.itemsize:
            raise ValueError("there are more or fewer values")
        return np.frombuffer(content, self.dtype).tolist()

    def packed(self, values: list[Any]) -> bytes:
        """The values as bytes, NaN where one is missing."""
        if self.dtype is None:
            return b"".join(struct.pack("<I", len(text)) + text for text in (value.encode() for value in values))
        return np.array(values, self.dtype).tobytes()


_NULL: type = type(None)
_WHOLE, _REAL = frozenset({int, _NULL}), frozenset({int, float, _NULL})
_ALL = (
    Datatype("BOOL", frozenset({bool, _NULL}), np.dtype(np.bool_)),
    Datatype("BYTES", frozenset({str, _NULL}), None),
    *(Datatype(f"INT{8 * size}", _WHOLE, np.dtype(f"<i{size}")) for size in (1, 2, 4, 8)),
    *(Datatype(f"UINT{8 * size}", _WHOLE, np.dtype(f"<u{size}")) for size in (1, 2, 4, 8)),
    *(Datatype(f"FP{8 * size}", _REAL, np.dtype(f"<f{size}")) for size in (2, 4, 8)),
)
DATATYPES = {datatype.name: datatype for datatype in _ALL}


class ReadTensor(NamedTuple):
    """A tensor of a request, its values in the order of rows."""

    name: str
    shape: list[int]
    values: list[Any]

    @property
    def is_column(self) -> bool:
        """Whether there is one value for each row."""
        return len(self.shape) == 1 or (len(self.shape) == 2 and self.shape[1] == 1)


def read_tensors(given: Any, binary: bytes, bounds: Bounds) -> list[ReadTensor]:
    """The tensors of a request; `binary` is what follows its JSON."""
    if not isinstance(given, list) or not given:
        raise Refusal("inputs must be a list of tensors, one for each column.")
    bounds.require(0, len(given))
    found, start = [], 0
    for tensor in given:
        if type(tensor) is not dict or type(name := tensor.get("name")) is not str:
            raise Refusal("Each of the inputs must be an object with name, datatype, shape and data.")
        shape, datatype = _shape(name, tensor.get("shape")), _datatype(name, tensor.get("datatype"))
        bounds.require(shape[0], math.prod(shape[1:]))
        size = _binary_size(name, tensor.get("parameters"))
        if size is None:
            values = _from_json(name, shape, datatype, tensor.get("data"))
        else:
            values = _from_binary(name, shape, datatype, binary[start : start + size], size)
            start += size
        found.append(ReadTensor(name, shape, values))
    if start != len(binary):
        raise Refusal(f"{len(binary) - start} bytes after the JSON belong to no tensor: see binary_data_size.")
    return found


def _shape(name: str, given: Any) -> list[int]:
    if type(given) is list and 1 <= len(given) <= 2 and all(type(n) is int and 0 <= n < 2**40 for n in given):
        return given
    raise Refusal(f"Tensor {name!r} has shape {given!r:.80}: [n] or [n, 1] is needed, with n rows.", column=name)


def _datatype(name: str, given: Any) -> Datatype:
    known = DATATYPES.get(given) if type(given) is str else None
    if known is None:
        raise Refusal(
            f"Tensor {name!r} has datatype {given!r:.80}, which is not read here: use {first_names(DATATYPES, 20)}.",
            column=name,
        )
    return known


def _binary_size(name: str, given: Any) -> int | None:
    """The number of bytes of a tensor that is in binary, from its parameters."""
    if not given:
        return None
    said = {key: value for key, value in given.items() if value is not None} if type(given) is dict else {"": given}
    content_type, size = said.pop("content_type", None), said.pop("binary_data_size", None)
    if said:
        raise Refusal(
            f"Tensor {name!r} has the parameter {next(iter(said))[:50]!r}, which is not read here: use "
            "'binary_data_size' or 'content_type'.",
            column=name,
        )
    if content_type is not None and content_type not in CONTENT_TYPES:
        raise Refusal(
            f"Tensor {name!r} has content_type {content_type!r:.80}, which is not read here: use "
            f"{first_names(CONTENT_TYPES)}.",
            column=name,
        )
    if size is not None and (type(size) is not int or size < 0):
        raise Refusal(f"binary_data_size of tensor {name!r} must be a number of bytes, got {size!r:.80}.", column=name)
    return size


def _from_json(name: str, shape: list[int], datatype: Datatype, data: Any) -> list[Any]:
    """Values of JSON, flat or in rows, each of the tensor's datatype or null."""
    if type(data) is not list:
        raise Refusal(f"Tensor {name!r} has no list of data, and no binary_data_size.", column=name)
    if len(shape) == 2 and data and type(data[0]) is list:
        if not all(type(row) is list and len(row) == shape[1] for row in data):
            raise Refusal(f"Tensor {name!r} has shape {shape}, and rows of another length.", column=name)
        data = list(chain.from_iterable(data))
    if len(data) != math.prod(shape):
        raise Refusal(
            f"Tensor {name!r} has {len(data)} values, and its shape {shape} needs {math.prod(shape)}.", column=name
        )
    if not datatype.kinds.issuperset(map(type, data)):
        i = next(i for i, value in enumerate(data) if type(value) not in datatype.kinds)
        row = i // math.prod(shape[1:]) + 1
        raise Refusal(
            f"Row {row}: tensor {name!r} holds {data[i]!r:.60}, which is not of its datatype {datatype.name}.",
            row=row,
            column=name,
        )
    return data


def _from_binary(name: str, shape: list[int], datatype: Datatype, content: bytes, size: int) -> list[Any]:
    if len(content) < size:
        raise Refusal(f"binary_data_size of tensor {name!r} is {size}: only {len(content)} bytes follow.", column=name)
    try:
        return datatype.unpacked(content, math.prod(shape))
    except ValueError:
        told = (
            f"The {size} bytes of tensor {name!r} are not the values of {datatype.name} that its shape {shape} needs."
        )
        raise Refusal(told, column=name) from None


def _unpacked_text(content: bytes, n: int) -> list[str | None]:
    """Text after text, each after its length; a missing one has no sign of its own, and is sent as an empty one."""
    found: list[str | None] = []
    start = 0
    while len(found) < n:
        if start + 4 > len(content):
            raise ValueError("a length is cut off")
        (length,) = struct.unpack_from("<I", content, start)
        start += 4 + length
        if start > len(content):
            raise ValueError("a text is cut off")
        found.append(content[start - length : start].decode() or None)
    if start != len(content):
        raise ValueError("there are more values")
    return found


def datatype_of(answer: str, classes: Sequence[Any], actions: Sequence[Any]) -> str:
    """The datatype of an answer."""
    if answer == "set":
        return "BOOL"
    if answer not in ("class", "action"):
        return "FP64"
    kinds = {*map(type, classes if answer == "class" else actions)}
    fitting = (name for name in ("BOOL", "INT64", "FP64") if kinds <= DATATYPES[name].kinds)
    return next(fitting, "BYTES")


def written(answers: Answers, wanted: dict[str, bool]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Answers as tensors of a response, and the bytes of those that are `wanted` in binary."""
    outputs, binary = [], []
    for name, is_binary in wanted.items():
        values = answers.values[name]
        datatype = datatype_of(name, answers.classes, answers.actions)
        data = _flat(name, values, datatype, answers)
        parameters: dict[str, Any] = {"content_type": "str" if datatype == "BYTES" else "np"}
        if values.ndim == 2:
            labels = answers.actions if name in BY_ACTION else answers.classes
            parameters["labels"] = orjson.dumps(labels).decode()
        output = {"name": name, "datatype": datatype, "shape": list(values.shape), "parameters": parameters}
        if is_binary:
            binary.append(DATATYPES[datatype].packed(data))
            parameters["binary_data_size"] = len(binary[-1])
        else:
            output["data"] = data
        outputs.append(output)
    return outputs, binary


def _flat(name: str, values: np.ndarray, datatype: str, answers: Answers) -> list[Any]:
    """An answer as values of JSON, row after row."""
    if name not in ("class", "action"):
        return values.ravel().tolist()  # orjson writes infinity, the margin of one action alone, as null
    labels = answers.classes if name == "class" else answers.actions
    if datatype == "BYTES":
        labels = [str(label) for label in labels]
    return [labels[code] for code in values.tolist()]
