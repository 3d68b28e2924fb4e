"""Which encoded columns belong together, read off their names: the levels of a category, indicators, numbers.

`TableEncoder` writes what a column is into its name, and a model sees the name, whatever library or file the encoded
rows pass through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from posteriori.tables.columns import DATE_PARTS

__all__ = ["MISSING", "NUMBERS", "TWO_LEVELS", "feature_blocks"]

NUMBERS = "(numbers)"
"""The block of columns that are neither levels, nor indicators of missing values, nor points on a circle."""
TWO_LEVELS = "(two levels)"
"""The block of all categories of two levels: each is one column, which says little about its own strength."""
MISSING = "(missing)"
"""The block of indicators of missing values."""

_ON_A_CIRCLE = tuple(f"_{part}" for part in DATE_PARTS if part.endswith(("_sin", "_cos")))


def feature_blocks(names: Sequence[str]) -> list[str]:
    """The block of each encoded column, by its name.

    ============================================  ===============================
    columns                                       block
    ============================================  ===============================
    `name=level`, several of one name             `name`
    `name=level`, the only one of its name        "(two levels)"
    `name_missing`                                "(missing)"
    `name_month_sin` and other points on circles  `name`
    all others                                    "(numbers)"
    ============================================  ===============================

    Examples
    --------
    >>> feature_blocks(["mass", "mass_missing", "island=Biscoe", "island=Dream", "island=Torgersen", "sex=male"])
    ['(numbers)', '(missing)', 'island', 'island', 'island', '(two levels)']
    """
    columns = Counter(name.partition("=")[0] for name in names if "=" in name)

    def block(name: str) -> str:
        stem, is_level, _ = name.partition("=")
        if is_level:
            return stem if columns[stem] > 1 else TWO_LEVELS
        if name.endswith("_missing"):
            return MISSING
        date = next((name.removesuffix(part) for part in _ON_A_CIRCLE if name.endswith(part)), None)
        return NUMBERS if date is None else date

    return [block(name) for name in names]
