"""Dates, taken apart into numbers."""

from __future__ import annotations

import numpy as np

__all__ = ["DATE_PARTS", "date_parts"]

DATE_PARTS = ("years", "month_sin", "month_cos", "weekday_sin", "weekday_cos", "hour_sin", "hour_cos")
"""What a date is taken apart into; "years" is kept in seconds until the training mean is known."""


def date_parts(values: np.ndarray) -> list[np.ndarray]:
    """The parts of dates, in the order of DATE_PARTS, the first in seconds since 1970; NaT gives NaN."""
    missing = np.isnat(values)
    microseconds = values.astype(np.int64)
    day_length = 86_400_000_000
    turns = (
        (values.astype("M8[M]").astype(np.int64) % 12) / 12,
        ((microseconds // day_length + 3) % 7) / 7,  # 1 January 1970 was a Thursday; Monday is 0
        (microseconds % day_length) / day_length,
    )
    parts = [microseconds / 1e6]
    for turn in turns:
        parts += [np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn)]
    if missing.any():
        for part in parts:
            part[missing] = np.nan
    return parts
