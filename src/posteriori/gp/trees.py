"""Trees of arrays: dicts, lists and named tuples whose leaves are arrays or numbers, such as free parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

__all__ = ["leaves", "packed", "rebuilt", "unpacked"]


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree in a fixed order: those of a dict by name."""
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves(tree[name])]
    if isinstance(tree, (list, tuple)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [] if tree is None else [tree]


def rebuilt(like: Any, values: Sequence[Any]) -> Any:
    """A tree of the shape of `like` with these leaves."""
    return _rebuilt(like, iter(values))


def _rebuilt(like: Any, values: Iterator[Any]) -> Any:
    if isinstance(like, dict):
        parts = {name: _rebuilt(like[name], values) for name in sorted(like)}
        return {name: parts[name] for name in like}
    if isinstance(like, (list, tuple)):
        parts_in_order = [_rebuilt(part, values) for part in like]
        return type(like)(*parts_in_order) if hasattr(like, "_fields") else type(like)(parts_in_order)
    return None if like is None else next(values)


def packed(tree: Any, chosen: Any) -> np.ndarray:
    """All numbers of the chosen leaves in one vector; `chosen` has the shape of the tree, with True and False."""
    parts = [np.ravel(leaf) for leaf, take in zip(leaves(tree), leaves(chosen), strict=True) if take]
    return np.concatenate([np.zeros(0), *parts])


def unpacked(vector: np.ndarray, like: Any, chosen: Any) -> Any:
    """The reverse of `packed`: leaves that are not chosen are those of `like`."""
    out, at = list[Any](), 0
    for leaf, take in zip(leaves(like), leaves(chosen), strict=True):
        size, shape = np.size(leaf), np.shape(leaf)
        out.append(vector[at : at + size].reshape(shape) if take else leaf)
        at += size if take else 0
    return rebuilt(like, out)
