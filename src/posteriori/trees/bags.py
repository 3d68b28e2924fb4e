r"""Which rows a tree sees: a bootstrap whose draws hang on what a row is, not on where it stands.

Row n is drawn for tree t as often as a Poisson variable says, of mean 1 or, where rows are very many, less,

.. math:: c_{nt} = F^{-1}(u_{nt}), \qquad u_{nt} = 2^{-64}\, h\big(\kappa_n + h(h(s) + \gamma t)\big),

with F its distribution function, h a mixing function on 64 bits, gamma an odd number, s the seed, and kappa a number
made of the values of the row. Rows of one group have one kappa: a tree sees all of them or none. So nothing has to be
kept to know later which trees did not see a row, and the order of rows makes no difference.
"""

from __future__ import annotations

import numpy as np
from scipy.special import pdtr

from posteriori.rows.copies import mixed, row_numbers

__all__ = ["bag_keys", "times_drawn"]

_MOST_TIMES = 20
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def bag_keys(X: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """A number kappa for each row, (n,): one for each group, even where rows of several groups are identical."""
    _, first, place = np.unique(groups, return_index=True, return_inverse=True)
    numbers = row_numbers(X)[first]
    order = np.argsort(numbers, kind="stable")
    new = np.concatenate([[True], numbers[order][1:] != numbers[order][:-1]])
    at = np.arange(len(order))
    earlier = np.empty(len(order), dtype=np.uint64)  # groups of identical rows that come before this one
    earlier[order] = at - np.maximum.accumulate(np.where(new, at, 0))
    return mixed(numbers ^ mixed(_GOLDEN * (earlier + np.uint64(1))))[place.reshape(-1)]


def times_drawn(keys: np.ndarray, tree: int, seed: int, rate: float = 1.0) -> np.ndarray:
    """How often this tree sees each row, (n,); `rate` is the mean."""
    of_seed = mixed(np.array([seed], dtype=np.uint64) + _GOLDEN)
    state = mixed(of_seed + np.array([tree + 1], dtype=np.uint64) * _GOLDEN)
    uniform = (mixed(keys + state) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.searchsorted(pdtr(np.arange(_MOST_TIMES), rate), uniform, side="right")
