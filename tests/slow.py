"""Parametrisations of which some run by default, and the others in `make test-slow`."""

from itertools import product

import pytest


def quick_first(values, quick=1):
    """Values for `pytest.mark.parametrize`: the first `quick` of them as they are, the others marked slow.

    Tuples are the values of several arguments.
    """
    values = list(values)
    rest = [pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.slow) for v in values[quick:]]
    return [*values[:quick], *rest]


def quick_among(names, quick, *values):
    """Decorator for all combinations of the values of several arguments: those not among the quick ones are slow."""
    combinations = [*quick, *(each for each in product(*values) if each not in quick)]
    return pytest.mark.parametrize(
        names, quick_first(combinations, len(quick)), ids=lambda value: getattr(value, "__name__", str(value))
    )
