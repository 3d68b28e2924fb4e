"""Checks of arguments that all of posteriori shares: counts, levels, choices, seeds, devices, and parameters by name.

Each check names the argument, what was given and what is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

__all__ = [
    "DEVICES",
    "Parameters",
    "finite_numbers",
    "first_names",
    "is_number",
    "is_whole_number",
    "numbers_by_class",
    "require_choice",
    "require_count",
    "require_device",
    "require_flag",
    "require_jobs",
    "require_level",
    "require_not_negative",
    "require_spd",
    "require_verbosity",
    "seed_from",
]

DEVICES = ("cpu", "gpu")


def is_number(value: Any) -> bool:
    """Whether a value is a real number, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def is_whole_number(value: Any) -> bool:
    """Whether a value is an integer of Python or NumPy, and not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))


def first_names(names: Iterable[Any], most: int = 10) -> str:
    """The first names or labels of a list as text for a message; "none" if there are none.

    >>> first_names(["a", "b", "c"], most=2)
    "'a', 'b', ... (3 in all)"
    """
    names = list(names)
    shown = ", ".join(map(repr, names[:most])) or "none"
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} in all)"


def require_count(name: str, value: Any, least: int = 0, *, none_allowed: bool = False) -> None:
    """Raise unless a value is a whole number of at least `least`, or None where that is allowed.

    >>> require_count("n_draws", 0, 1)
    Traceback (most recent call last):
        ...
    ValueError: n_draws=0 must be a whole number of at least 1.
    """
    if none_allowed and value is None:
        return
    if not is_whole_number(value) or value < least:
        needed = f"a whole number of at least {least}"
        raise ValueError(f"{name}={value!r} must be {'None or ' if none_allowed else ''}{needed}.")


def require_flag(name: str, value: Any) -> None:
    """Raise unless a value is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}={value!r} must be True or False.")


def require_choice(name: str, value: Any, allowed: Collection[str], *, others: str = "") -> None:
    """Raise unless a value is one of the allowed names; `others` says what else may be passed.

    >>> require_choice("estimate", "mean", ("mle", "map"))
    Traceback (most recent call last):
        ...
    ValueError: estimate='mean' is unknown: use one of ['mle', 'map'].
    """
    if not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name}={value!r} is unknown: use one of {[*allowed]}{others}.")


def require_not_negative(name: str, value: Any) -> None:
    """Raise unless a value is a finite number that is not negative."""
    if not is_number(value) or not 0.0 <= float(value) < np.inf:
        raise ValueError(f"{name}={value!r} must be a number that is not negative.")


def require_level(level: Any) -> float:
    """The level of an interval, which lies between 0 and 1."""
    if not is_number(level) or not 0.0 < float(level) < 1.0:
        raise ValueError(f"level={level!r} must lie between 0 and 1: 95 % is 0.95.")
    return float(level)


def require_device(device: Any) -> None:
    """Raise unless a device is None or one that posteriori knows; whether this machine has it shows in the fit."""
    if not (device is None or (isinstance(device, str) and device in DEVICES)):
        raise ValueError(f"device={device!r} is not available: use None, 'cpu' or 'gpu'.")


def require_jobs(n_jobs: Any) -> None:
    """Raise unless a number of threads is None or a whole number."""
    if not (n_jobs is None or is_whole_number(n_jobs)):
        raise ValueError(f"n_jobs={n_jobs!r} must be a whole number or None.")


def require_verbosity(verbose: Any) -> None:
    """Raise unless a verbosity is a whole number or a bool."""
    if not isinstance(verbose, (bool, int, np.integer)):
        raise ValueError(f"verbose={verbose!r} must be a whole number.")


def numbers_by_class(name: str, given: Any, classes: np.ndarray) -> np.ndarray:
    """One number for each class, (K,), from numbers in the order of the classes or a dict from class to number.

    >>> numbers_by_class("class_prior", {"b": 0.3, "a": 0.7}, np.array(["a", "b"]))
    array([0.7, 0.3])
    """
    values = given
    if isinstance(given, Mapping):
        labels = classes.tolist()
        unknown, missing = [c for c in given if c not in labels], [c for c in labels if c not in given]
        if unknown or missing:
            raise ValueError(
                f"{name} must name every class once: {unknown or 'none'} are not classes, {missing or 'none'} are "
                "missing."
            )
        values = [given[label] for label in labels]
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={given!r} must be numbers.") from None
    if numbers.shape != classes.shape:
        raise ValueError(f"{name} has shape {numbers.shape}: a number for each of {len(classes)} classes is needed.")
    return numbers


def seed_from(random_state: Any) -> int:
    """The seed that a `random_state` stands for: 0 for None, so that results repeat."""
    try:
        state = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(f"random_state={random_state!r} is not a seed: {error}") from None
    return 0 if random_state is None else int(state.randint(2**31))


@dataclass
class Parameters:
    """A dataclass whose fields scikit-learn can read and set by name: priors and kernels are such."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn asks for them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        known = self.get_params()
        unknown = [name for name in params if name not in known]
        if unknown:
            raise ValueError(f"{type(self).__name__} has no parameter {unknown[0]!r}: its parameters are {[*known]}.")
        for name, value in params.items():
            setattr(self, name, value)
        return self


def finite_numbers(name: str, value: Any) -> np.ndarray:
    """An array of finite numbers."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"The prior's {name} is {value!r}: numbers are needed.") from None
    if not np.isfinite(array).all():
        raise ValueError(f"The prior's {name} must be finite.")
    return array


def require_spd(name: str, M: np.ndarray) -> None:
    """Raise unless a matrix is symmetric and positive definite."""
    if not np.allclose(M, M.T, rtol=1e-8, atol=1e-12 * np.abs(M).max(initial=0.0)):
        raise ValueError(f"The prior's {name} must be symmetric.")
    try:
        np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        raise ValueError(f"The prior's {name} must be positive definite.") from None
