"""Parametrisations of which some run by default, and the others in `make test-slow`."""

import pytest


def quick_first(values, quick=1):
    """Values for `pytest.mark.parametrize`: the first `quick` of them as they are, the others marked slow.

    Tuples are the values of several arguments.
    """
    values = list(values)
    rest = [pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.slow) for v in values[quick:]]
    return [*values[:quick], *rest]
