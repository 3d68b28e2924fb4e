"""Many combinations of parameters, of which a few are tried in every run and the others in slow ones."""

from itertools import product

import pytest


def thinned(names, fast, *values):
    """All combinations of the values; those that are not among the fast ones are slow."""
    combinations = [pytest.param(*each, marks=() if each in fast else pytest.mark.slow) for each in product(*values)]
    return pytest.mark.parametrize(names, combinations, ids=lambda value: getattr(value, "__name__", str(value)))
