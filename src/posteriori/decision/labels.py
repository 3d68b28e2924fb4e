"""Labels of two sources that mean the same: the number 1 and the text "1", True and "TRUE", "a" and " A."."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

__all__ = ["alike", "as_classes", "readings"]

_BOOLEANS = {"true": True, "t": True, "yes": True, "y": True, "1": True}
_BOOLEANS |= {"false": False, "f": False, "no": False, "n": False, "0": False}

Reading = Callable[[Any], Any]


def readings(classes: Iterable[Any]) -> Iterator[Reading]:
    """Ways to read a label, the strictest first.

    They are: as it is, as its text, as its plain text, without regard to capitals and a full stop, as a truth value.
    Two labels are the same in the first of these in which all labels of both sources stay apart and match.
    """
    yield lambda label: label
    yield str
    yield _plain
    yield _loose
    if {type(label) for label in classes} <= {bool, np.bool_}:
        yield _truth


def as_classes(labels: Any, classes: Any) -> np.ndarray:
    """The labels in the spelling of the classes, by the strictest way to read most of them as such.

    Labels that are not among the classes stay as they are given.

    Examples
    --------
    >>> as_classes(["2", " 1"], [1, 2]).tolist()
    [2, 1]
    >>> as_classes(["2", "three"], [1, 2]).tolist()
    [2, 'three']
    """
    given, known = np.asarray(labels), np.asarray(classes)
    found = set(given.ravel().tolist())
    best: dict[Any, Any] = {}
    for read in readings(known.tolist()):
        index = {read(label): label for label in known.tolist()}
        matched = {label: index[read(label)] for label in found if read(label) in index}
        if len(index) == len(known) and len(matched) > len(best):
            best = matched
    spelled = [best.get(label, label) for label in given.ravel().tolist()]
    if len(best) == len(found):
        return np.array(spelled, dtype=known.dtype)
    out = np.empty(len(spelled), dtype=object)
    out[:] = spelled
    return out if best else given


def _plain(label: Any) -> str:
    """The text of a label without blanks around it; whole numbers without a point, truth values in small letters."""
    text = str(label).strip()
    try:
        value = float(text)
    except ValueError:
        return text.lower() if text.lower() in ("true", "false") else text
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def alike(labels: Iterable[Any]) -> list[list[Any]]:
    """Labels that probably mean the same: groups that differ only in capitals, blanks or a full stop at the end.

    >>> alike(["yes", "no", "Yes", "no."])
    [['yes', 'Yes'], ['no', 'no.']]
    """
    groups: dict[str, list[Any]] = {}
    for label in labels:
        groups.setdefault(_loose(label), []).append(label)
    return [group for group in groups.values() if len(group) > 1]


def _loose(label: Any) -> str:
    """The plain text of a label in small letters, with single blanks, without a full stop at its end."""
    return " ".join(_plain(label).casefold().split()).rstrip(".")


def _truth(label: Any) -> Any:
    """The truth value that a label stands for, or its text."""
    text = _plain(label).lower()
    return _BOOLEANS.get(text, text)
