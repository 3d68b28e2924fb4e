"""Values as a tree of JSON with named tensors beside it, and back.

What JSON has stands for itself: None, booleans, whole numbers, finite floats (by repr, exactly), text, lists, and dicts
whose keys are text. All else is an object with the key "$", which says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from posteriori.callbacks import CALLBACKS
from posteriori.exceptions import StorageError
from posteriori.left_out.rows import RowsReference
from posteriori.storage.arrays import as_tensor, check_tensor, dtype_of, from_tensor, is_plain
from posteriori.storage.registry import Deferred, Stored, by_name, of_type

__all__ = ["MALFORMED", "decode", "encode", "stored_in"]

Tensors = dict[str, np.ndarray]

MALFORMED = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""Errors that reading may raise of a tree that was not written by `encode`."""

_DEEPEST = 64
"""The most levels of values within values."""
_WIDEST = 1 << 28
"""Most bytes of an array of text: a file may not ask for any amount of memory."""
_LARGEST = 10**4000
"""Whole numbers from this one on are not stored: Python may refuse to read so many digits from text."""


def encode(value: Any, path: str = "") -> tuple[Any, Tensors]:
    """The tree of a value, and its tensors, named by where they are found."""
    writer = _Writer()
    return writer.node(value, path, 0), writer.tensors


def decode(node: Any, tensors: Tensors, *, defer: bool = True) -> Any:
    """The value of a tree; objects that need JAX are made when they are used, unless `defer` is False."""
    _check(node, tensors, 0)
    return _Reader(tensors, defer).value(node)


def stored_in(tree: Any) -> set[Stored]:
    """The known classes that a tree has objects of."""
    found: set[Stored] = set()
    left = [tree]
    while left:  # not by recursion: how deep a tree of a file is has not been checked yet
        node = left.pop()
        if isinstance(node, dict):
            known = by_name(node.get("class")) if node.get("$") == "object" else None
            found |= {known} if known is not None else set()
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)
    return found


class _Writer:
    """Turns values into nodes; each kind of value has a method, found by its type in `_WRITERS`."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}

    def node(self, value: Any, path: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise TypeError(f"{_at(path)} is nested deeper than {_DEEPEST} levels: it cannot be stored.")
        if isinstance(value, Deferred):
            value = value.made()
        write = _WRITERS.get(type(value)) or next(
            (write for kind, write in _WRITERS_OF_SUBTYPES.items() if isinstance(value, kind)), _Writer._object
        )
        return write(self, value, path, depth)

    def _itself(self, value: bool | str | None, path: str, depth: int) -> Any:
        return value

    def _int(self, value: int, path: str, depth: int) -> int:
        if abs(value) >= _LARGEST:
            raise TypeError(f"{_at(path)} is a whole number of too many digits: it cannot be stored.")
        return value

    def _float(self, value: float, path: str, depth: int) -> Any:
        return value if isfinite(value) else {"$": "float", "value": repr(value)}

    def _complex(self, value: complex, path: str, depth: int) -> Any:
        return {"$": "complex", "parts": [self.node(part, path, depth + 1) for part in (value.real, value.imag)]}

    def _tuple(self, value: tuple[Any, ...], path: str, depth: int) -> Any:
        return {"$": "tuple", "items": self._items(value, path, depth)}

    def _set(self, value: set[Any] | frozenset[Any], path: str, depth: int) -> Any:
        ordered = sorted(value, key=lambda item: (type(item).__name__, repr(item)))
        return {"$": type(value).__name__, "items": self._items(ordered, path, depth)}

    def _bytes(self, value: bytes, path: str, depth: int) -> Any:
        return {"$": "bytes", "hex": value.hex()}

    def _path(self, value: PurePath, path: str, depth: int) -> Any:
        return {"$": "path", "value": str(value)}

    def _items(self, values: Iterable[Any], path: str, depth: int) -> list[Any]:
        return [self.node(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(values)]

    def _dict(self, value: dict[Any, Any], path: str, depth: int) -> Any:
        if "$" not in value and all(type(key) is str for key in value):
            return {key: self.node(item, f"{path}[{key!r}]", depth + 1) for key, item in value.items()}
        pairs = [
            [self.node(key, f"{path}.keys()[{i}]", depth + 1), self.node(item, f"{path}[{key!r}]", depth + 1)]
            for i, (key, item) in enumerate(value.items())
        ]
        return {"$": "dict", "items": pairs}

    def _array(self, array: np.ndarray, path: str, depth: int) -> Any:
        if is_plain(array.dtype):
            name = self._free_name(path)
            self.tensors[name], about = as_tensor(array)
            return {"$": "array", "tensor": name, **about}
        kind = array.dtype.kind
        if kind not in "USO" and array.dtype != np.dtypes.StringDType():
            raise TypeError(f"{_at(path)} is an array of dtype {array.dtype}: it cannot be stored.")
        dtype = {"O": "object", "T": "text"}.get(kind, array.dtype.str)
        flat = [array[i] for i in np.ndindex(array.shape)] if kind == "O" else array.ravel().tolist()
        return {
            "$": "labels", "dtype": dtype, "shape": list(array.shape), "items": self._items(flat, path, depth)
        }  # fmt: skip

    def _scalar(self, value: np.generic, path: str, depth: int) -> Any:
        if isinstance(value, np.str_):
            return {"$": "scalar", "dtype": "str", "value": str(value)}
        if not is_plain(value.dtype):
            raise TypeError(f"{_at(path)} is a {type(value).__name__}: it cannot be stored.")
        return {"$": "scalar", "dtype": value.dtype.str, "hex": value.tobytes().hex(), "shown": str(value)}

    def _dtype(self, dtype: np.dtype, path: str, depth: int) -> Any:
        if dtype == np.dtype(object):
            return {"$": "dtype", "value": "object"}
        if not is_plain(dtype):
            raise TypeError(f"{_at(path)} is the dtype {dtype}: it cannot be stored.")
        return {"$": "dtype", "value": dtype.str}

    def _object(self, value: Any, path: str, depth: int) -> Any:
        stored = of_type(type(value))
        if stored is None:
            raise TypeError(_refusal(value, path))
        if stored.kind == "enum":
            return {"$": "enum", "class": stored.name, "name": value.name}
        if stored.prepare is not None:
            stored.prepare(value)
        node: dict[str, Any] = {"$": "object", "class": stored.name}
        prefix = f"{path}." if path else ""
        for part, named in _parts(value, stored).items():
            node[part] = {name: self.node(item, prefix + name, depth + 1) for name, item in named.items()}
        return node

    def _free_name(self, path: str) -> str:
        # two keys may have the same text; and safetensors keeps one name for itself
        name, n = path or "value", 2
        while name in self.tensors or name == "__metadata__":
            name, n = f"{path}#{n}", n + 1
        return name


_WRITERS: dict[type, Callable[[_Writer, Any, str, int], Any]] = {
    type(None): _Writer._itself,
    bool: _Writer._itself,
    str: _Writer._itself,
    int: _Writer._int,
    float: _Writer._float,
    complex: _Writer._complex,
    list: _Writer._items,
    tuple: _Writer._tuple,
    set: _Writer._set,
    frozenset: _Writer._set,
    dict: _Writer._dict,
    bytes: _Writer._bytes,
    np.ndarray: _Writer._array,
}
"""Values of exactly these types; a subclass may hold more than its base."""
_WRITERS_OF_SUBTYPES: dict[type, Callable[[_Writer, Any, str, int], Any]] = {
    PurePath: _Writer._path,
    np.generic: _Writer._scalar,
    np.dtype: _Writer._dtype,
}
"""Values of these types and of types derived from them."""


def _parts(value: Any, stored: Stored) -> dict[str, dict[str, Any]]:
    """The parts of an object that are stored: the parameters of an estimator apart from what it has learned."""
    if stored.kind == "estimator":
        params = value.get_params(deep=False)
        state = {
            name: item
            for name, item in vars(value).items()
            if name not in params and name != CALLBACKS and not isinstance(item, RowsReference)
        }
        return {"params": params, "state": state if stored.lean is None else stored.lean(state)}
    if stored.kind == "attributes":
        extra = [name for name in stored.optional if getattr(value, name) is not None]
        state = {name: getattr(value, name) for name in (*stored.attributes, *extra)}
    else:
        state = {name: getattr(value, name) for name in _field_names(type(value))}
    return {"fields": state if stored.lean is None else stored.lean(state)}


def _field_names(cls: Any) -> list[str]:
    return [field.name for field in fields(cls)] if is_dataclass(cls) else list(cls._fields)


def _at(path: str) -> str:
    return f"The value at {path}" if path else "The value"


def _refusal(value: Any, path: str) -> str:
    """Why an object cannot be stored, and what to do."""
    kind = type(value)
    what = f"{_at(path)} is a {kind.__module__}.{kind.__qualname__}"
    if callable(value) and not hasattr(value, "fit"):
        return f"{what}, and functions are not stored: use values in its place, such as a matrix of utilities."
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return f"{what}, and generators are not stored: use a whole number as random_state."
    return (
        f"{what}, which is not among the classes that can be stored: posteriori's own, pipelines, and a few "
        "transformers of scikit-learn."
    )


def _check(node: Any, tensors: Tensors, depth: int) -> None:
    """Raise unless all tensors and classes that a tree names exist: parts of it are made later."""
    if depth > 4 * _DEEPEST:
        raise StorageError("its header is nested too deeply")
    if isinstance(node, list):
        for item in node:
            _check(item, tensors, depth + 1)
    elif isinstance(node, dict):
        if node.get("$") == "array":
            name = node.get("tensor")
            if not isinstance(name, str) or name not in tensors:
                raise StorageError(f"the tensor {name!r} is missing")
            check_tensor(tensors[name], node, name)
        elif node.get("$") in ("object", "enum") and by_name(node.get("class")) is None:
            raise StorageError(f"its class {str(node.get('class'))[:100]!r} is unknown to this version of posteriori")
        for item in node.values():
            _check(item, tensors, depth + 1)


class _Reader:
    def __init__(self, tensors: Tensors, defer: bool) -> None:
        self.tensors, self.defer = tensors, defer

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$" not in node:
            return {key: self.value(item) for key, item in node.items()}
        read = getattr(self, f"_{node['$']}", None) if node["$"] in _TAGS else None
        if read is None:
            raise StorageError(f"it holds a value of the unknown kind {str(node['$'])[:100]!r}")
        return read(node)

    def late(self, node: dict[str, Any]) -> Any:
        """The value of a part that was left for later; errors are those of the file, as they are when it is read."""
        try:
            return self.value(node)
        except MALFORMED as error:
            raise StorageError(f"The model's file cannot be read: {error}.") from None

    def _float(self, node: dict[str, Any]) -> float:
        if node["value"] not in ("nan", "inf", "-inf"):
            raise StorageError(f"it holds {str(node['value'])[:100]!r}, which is not nan, inf or -inf")
        return float(node["value"])

    def _complex(self, node: dict[str, Any]) -> complex:
        real, imag = self.value(node["parts"])
        return complex(real, imag)

    def _tuple(self, node: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(self._list_of(node))

    def _set(self, node: dict[str, Any]) -> set[Any]:
        return set(self._list_of(node))

    def _frozenset(self, node: dict[str, Any]) -> frozenset[Any]:
        return frozenset(self._list_of(node))

    def _dict(self, node: dict[str, Any]) -> dict[Any, Any]:
        return dict(self._list_of(node))

    def _list_of(self, node: dict[str, Any]) -> list[Any]:
        if not isinstance(node["items"], list):
            raise StorageError(f"a {node['$']} in it has no items")
        return self.value(node["items"])

    def _bytes(self, node: dict[str, Any]) -> bytes:
        return bytes.fromhex(node["hex"])

    def _path(self, node: dict[str, Any]) -> Path:
        return Path(node["value"])

    def _dtype(self, node: dict[str, Any]) -> np.dtype:
        return np.dtype(object) if node["value"] == "object" else dtype_of(node["value"])

    def _array(self, node: dict[str, Any]) -> np.ndarray:
        return from_tensor(self.tensors[node["tensor"]], node, node["tensor"])

    def _scalar(self, node: dict[str, Any]) -> Any:
        if node["dtype"] == "str":
            return np.str_(node["value"])
        data, dtype = bytes.fromhex(node["hex"]), dtype_of(node["dtype"])
        if len(data) != dtype.itemsize:
            raise StorageError(f"a number of dtype {dtype} in it has {len(data)} bytes")
        return np.frombuffer(data, dtype)[0]

    def _labels(self, node: dict[str, Any]) -> np.ndarray:
        shape, items = node["shape"], self._list_of(node)
        dtype = _label_dtype(node["dtype"])
        sizes = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
        if not sizes or len(shape) > 64 or _product(shape) != len(items):
            raise StorageError(f"an array of {len(items)} labels in it has the shape {str(shape)[:100]}")
        if dtype.kind in "US" and dtype.itemsize * len(items) > _WIDEST:
            raise StorageError(f"an array of {len(items)} labels in it has the dtype {dtype.str}")
        if dtype.kind != "O" and not all(isinstance(item, bytes if dtype.kind == "S" else str) for item in items):
            raise StorageError("an array of text in it holds something else")
        flat = np.empty(len(items), dtype)
        for i, item in enumerate(items):
            flat[i] = item
        return flat.reshape(shape)

    def _enum(self, node: dict[str, Any]) -> Enum:
        stored = _known(node)
        if stored.kind != "enum" or node["name"] not in stored.type.__members__:
            raise StorageError(f"{stored.name} has no member {str(node['name'])[:100]!r}")
        return stored.type[node["name"]]

    def _object(self, node: dict[str, Any]) -> Any:
        stored = _known(node)
        if stored.deferred and self.defer:
            return Deferred(lambda: _Reader(self.tensors, False).late(node))
        if stored.kind == "estimator":
            made = stored.type(**self._named(node, "params", stored))
            vars(made).update(self._named(node, "state", stored))
        elif stored.kind == "attributes":
            state = self._named(node, "fields", stored)
            if set(state) - set(stored.optional) != set(stored.attributes):
                raise StorageError(f"{stored.name} needs {sorted(stored.attributes)}, and has {sorted(state)}")
            made = object.__new__(stored.type)
            vars(made).update(state)
        else:
            made = self._of_fields(stored, self._named(node, "fields", stored))
        if stored.finish is not None:
            stored.finish(made)
        return made

    def _of_fields(self, stored: Stored, state: dict[str, Any]) -> Any:
        unknown = set(state) - set(_field_names(stored.type))
        if unknown:
            raise StorageError(f"{stored.name} has no field {sorted(unknown)[0]!r}")
        return stored.type(**state)

    def _named(self, node: dict[str, Any], part: str, stored: Stored) -> dict[str, Any]:
        named = node.get(part)
        if not isinstance(named, dict) or not all(name.isidentifier() for name in named):
            raise StorageError(f"{stored.name} has no {part}")
        if any(name.startswith("__") for name in named):
            raise StorageError(f"{stored.name} has {part} whose names begin with two underscores")
        return {name: self.value(item) for name, item in named.items()}


_TAGS = frozenset(
    ("float", "complex", "tuple", "set", "frozenset", "dict", "bytes", "path", "dtype", "array", "scalar", "labels")
) | {"enum", "object"}


def _known(node: dict[str, Any]) -> Stored:
    stored = by_name(node.get("class"))
    if stored is None:
        raise StorageError(f"its class {str(node.get('class'))[:100]!r} is unknown to this version of posteriori")
    return stored


def _label_dtype(text: Any) -> np.dtype:
    if text == "object":
        return np.dtype(object)
    if text == "text":
        return np.dtypes.StringDType()
    try:
        dtype = np.dtype(text) if isinstance(text, str) and len(text) <= 16 else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.kind not in "US":
        raise StorageError(f"the dtype {str(text)[:100]!r} is unknown here")
    return dtype


def _product(sizes: list[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
