"""Decisions for all rows of a stored table, taken once for each utility."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.decision.decisions import decide
from posteriori.decision.utility import Utility
from posteriori.serve.answers import utility_from
from posteriori.serve.errors import Refusal
from posteriori.serve.stored_tables import StoredTable

__all__ = ["TableDecisions", "decided"]


@dataclass(frozen=True)
class TableDecisions:
    """The decisions for all rows.

    Attributes
    ----------
    utility : Utility
        Its states are in the order of the table's classes.
    key : str
        What tells utilities apart.
    codes : ndarray of int (n,)
        The places of the best actions.
    expected, margin, value_of_information : ndarray (n,)
        The expected utility of the best action, by how much it is better than the second best, and what it would be
        worth to know the truth.
    """

    utility: Utility
    key: str
    codes: np.ndarray
    expected: np.ndarray
    margin: np.ndarray
    value_of_information: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.codes, self.expected, self.margin, self.value_of_information)
        return sum(array.nbytes for array in arrays)

    @property
    def actions(self) -> list[Any]:
        """The names of the actions, as values of JSON."""
        return self.utility.actions.tolist()

    @property
    def matrix(self) -> np.ndarray:
        """Utilities (K, A)."""
        assert self.utility.matrix is not None
        return self.utility.matrix

    def differ_from(self, other: TableDecisions) -> np.ndarray:
        """Whether an action of `other` is another one than an action of these, by name: (A of other, A)."""
        return np.array([[str(one) != str(two) for two in self.actions] for one in other.actions])


def decided(table: StoredTable, given: Any) -> TableDecisions | None:
    """Decide all rows by a utility as it is in JSON; None if there is none."""
    if given is None:
        return None
    utility = utility_from(given)
    try:
        utility = utility.ordered(np.asarray(table.classes))
    except ValueError as error:
        raise Refusal(str(error)) from None
    assert utility.matrix is not None
    key = repr((utility.actions.tolist(), utility.matrix.tolist()))
    return table.recent.get((table.id, "decisions", key), lambda: _all_rows(table, utility, key))


def _all_rows(table: StoredTable, utility: Utility, key: str) -> TableDecisions:
    n, P = table.n_rows, table.answers["proba"]
    codes = np.empty(n, dtype=np.uint16)
    expected, margin, value = np.empty(n), np.empty(n), np.empty(n)
    for part in table.parts():
        found = decide(P[part], utility)
        codes[part], margin[part], value[part] = found.codes, found.margin, found.value_of_information
        expected[part] = found.expected_utility.max(axis=1)
    return TableDecisions(utility, key, codes, expected, margin, value)
