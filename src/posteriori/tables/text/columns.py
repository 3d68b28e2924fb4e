"""Columns of text: what they hold, seen in one pass, and the same text as numbers, booleans, dates or categories.

A `Tally` counts how many values of a column each form can read. It is of bounded size and tallies merge, so that a file
of any length is judged as a whole. `choices` makes one form of the tally, and `convert` reads text in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posteriori.tables.text.forms import (
    BOOLEAN,
    BOUND,
    BOUND_COMMA,
    COMMA,
    DATES,
    DECIMAL,
    MISSING,
    NOTHING,
    POINT,
    SPELLED_BOOLEAN,
    TIME,
    WHOLE,
    ZONED_DATES,
    DateFits,
    TextForm,
    fits,
    fits_dates,
    unit_of,
)

__all__ = ["FORMS", "Tally", "convert", "misfit_rows", "tally"]

_MOST_EXAMPLES = 20
_MANY = 20
_TRIED = 100
_FEW = 32
_DATE_NAMES, _ZONED_NAMES = ("DATE 0", "DATE 1", "DATE 2"), ("ZONED 0", "ZONED 1", "ZONED 2")
FORMS = {
    "WHOLE": WHOLE,
    "DECIMAL": DECIMAL,
    "POINT": POINT,
    "COMMA": COMMA,
    "BOUND": BOUND,
    "BOUND COMMA": BOUND_COMMA,
    "BOOLEAN": BOOLEAN,
    "SPELLED": SPELLED_BOOLEAN,
    "TIME": TIME,
    **dict(zip(_DATE_NAMES, DATES, strict=True)),
    **dict(zip(_ZONED_NAMES, ZONED_DATES, strict=True)),
}
"""Forms that are counted, by the names that tallies have for them."""
_PLAIN = ("DECIMAL", "POINT", "BOUND")


@dataclass(frozen=True)
class Tally:
    """What was seen in a column of text.

    Attributes
    ----------
    n_missing, n_values : int
        Missing values, and all others.
    fitting : Counter of str
        How many values each form can read.
    misfits : Counter of str
        Some of the values that are not numbers, and how often they occur.
    n_infinite, n_padded, n_digits, n_long : int
        Infinite numbers; texts of digits only, those that begin with 0 although they have more digits, and those of
        more than 18 digits.
    widths : tuple of int
        The least and the greatest length of texts of digits.
    n_plus, n_minus : int
        How often "+" and "-" stand alone.
    units : Counter of str
        Some of the words after numbers, as in 998 cc, and how often they occur.
    first, second : int
        The numbers before the year of dates such as 31/01/2024, as bits.
    numbers : frozenset of str
        Some of the distinct numbers, enough to know whether they are many.
    """

    n_missing: int = 0
    n_values: int = 0
    fitting: Counter[str] = field(default_factory=Counter)
    misfits: Counter[str] = field(default_factory=Counter)
    n_infinite: int = 0
    n_padded: int = 0
    n_digits: int = 0
    n_long: int = 0
    widths: tuple[int, int] = (1 << 30, 0)
    n_plus: int = 0
    n_minus: int = 0
    units: Counter[str] = field(default_factory=Counter)
    first: int = 0
    second: int = 0
    numbers: frozenset[str] = frozenset()

    def __add__(self, other: Tally) -> Tally:
        if not self.n_values + self.n_missing:
            return other
        return Tally(
            self.n_missing + other.n_missing,
            self.n_values + other.n_values,
            self.fitting + other.fitting,
            Counter(dict((self.misfits + other.misfits).most_common(_MOST_EXAMPLES))),
            self.n_infinite + other.n_infinite,
            self.n_padded + other.n_padded,
            self.n_digits + other.n_digits,
            self.n_long + other.n_long,
            (min(self.widths[0], other.widths[0]), max(self.widths[1], other.widths[1])),
            self.n_plus + other.n_plus,
            self.n_minus + other.n_minus,
            Counter(dict((self.units + other.units).most_common(_MOST_EXAMPLES))),
            self.first | other.first,
            self.second | other.second,
            self.numbers if self.has_many_numbers else _some(self.numbers | other.numbers),
        )

    @property
    def has_many_numbers(self) -> bool:
        """Whether there are so many distinct numbers that they are no levels."""
        return len(self.numbers) >= _MANY

    @property
    def coded(self) -> bool:
        """Whether all values are codes: digits padded with zeros to one width, or too many digits for a number."""
        digits = self.n_digits + self.n_long
        if self.n_padded and self.widths[0] == self.widths[1]:
            return digits >= 0.9 * self.n_values  # 007 and a few such as 016a
        return 0 < self.n_values == digits and (self.n_long > 0 or self.n_padded == self.n_values)


def _some(numbers: Iterable[str]) -> frozenset[str]:
    return frozenset(sorted(numbers)[:_MANY])


def tally(text: pa.Array) -> Tally:
    """The tally of one array of text, in which missing values may be null already.

    Examples
    --------
    >>> seen = tally(pa.array(["1", "2.5", "?", "unknown"]))
    >>> seen.n_missing, seen.fitting["DECIMAL"], dict(seen.misfits)
    (1, 2, {'unknown': 1})
    """
    return _tally_of_numbers(text) or _tally_of_levels(text)


def _tally_of_numbers(text: pa.Array) -> Tally | None:
    """The tally of a column of plain numbers, which are most of all columns; None if it is not one."""
    n = len(text) - text.null_count
    if n == 0:
        return Tally(n_missing=len(text))
    cast = _cast(text, pa.float64())
    if cast is None:
        return None
    values = cast.to_numpy(zero_copy_only=False)
    present = values == values
    values = values if text.null_count == 0 else values[present]
    if len(values) < n or not (np.abs(values) < 1e18).all():  # not a number, infinite, or of too many digits
        return None
    numbers = _some(text.slice(0, _TRIED).drop_null().unique().to_pylist())
    if all(re.fullmatch(r"-?[1-9][0-9]{0,2}\.[0-9]{3}", number) for number in numbers):
        return None  # 1.234 may be more than a thousand
    if not (values == np.floor(values)).all():
        return Tally(text.null_count, n, _all_fit(n, *_PLAIN), numbers=numbers)
    lengths = pc.binary_length(text).to_numpy(zero_copy_only=False)[present]
    digits = np.floor(np.log10(np.maximum(np.abs(values), 1.0))) + 1 + (values < 0)
    if not (lengths == digits).all():  # a leading zero, a plus, a point or an exponent
        pointed = pc.all(pc.match_substring(text, ".")).as_py()
        return Tally(text.null_count, n, _all_fit(n, *_PLAIN), numbers=numbers) if pointed else None
    forms = _all_fit(n, "WHOLE", "COMMA", "BOUND COMMA", *_PLAIN)
    if lengths.max() == 1:
        forms["SPELLED"] = int((values < 2.0).sum())
    unsigned = 0 if (values < 0).any() else n
    widths = (int(lengths.min()), int(lengths.max()))
    return Tally(text.null_count, n, forms, n_digits=unsigned, widths=widths, numbers=numbers)


def _all_fit(n: int, *names: str) -> Counter[str]:
    return Counter(dict.fromkeys(names, n))


def _cast(text: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Plain numbers, read by Arrow; None if one of them is something else.

    Arrow makes an error for every value that it cannot read, so that a few are tried first.
    """
    try:
        if len(text) > _TRIED:
            pc.cast(text.slice(0, _TRIED), kind)
        return pc.cast(text, kind)
    except pa.ArrowInvalid:
        return None


def _tally_of_levels(text: pa.Array) -> Tally:
    """The tally of any column: each of its distinct values is looked at once."""
    encoded = _trimmed(text).dictionary_encode()
    codes = encoded.indices.drop_null().to_numpy(zero_copy_only=False)
    levels, counts = encoded.dictionary, np.bincount(codes, minlength=len(encoded.dictionary))
    seen = _facts_of_few(tuple(levels.to_pylist())) if len(levels) <= _FEW else _facts(levels)

    def total(mask: np.ndarray) -> int:
        return int(counts[mask].sum())

    n_values = total(seen.present)
    words = np.flatnonzero(seen.present & ~seen.fitting["POINT"] & ~seen.fitting["COMMA"])
    words = words[np.argsort(-counts[words], kind="stable")][:_MOST_EXAMPLES]
    numbers = np.flatnonzero(seen.present & (seen.fitting["POINT"] | seen.fitting["COMMA"]))[:_MANY]
    return Tally(
        len(text) - n_values,
        n_values,
        Counter({name: total(mask) for name, mask in seen.fitting.items()}),
        Counter({levels[int(i)].as_py(): int(counts[i]) for i in words}),
        total(seen.infinite),
        total(seen.padded),
        total(seen.digits),
        total(seen.long),
        seen.widths,
        total(seen.plus),
        total(seen.minus),
        _counted_units(seen.units, counts),
        seen.dates.first,
        seen.dates.second,
        frozenset(levels.take(pa.array(numbers)).to_pylist()),
    )


class _Facts(NamedTuple):
    """What holds of each of some distinct values, (n,) booleans each; see `Tally`."""

    present: np.ndarray
    fitting: dict[str, np.ndarray]
    dates: DateFits
    infinite: np.ndarray
    padded: np.ndarray
    digits: np.ndarray
    long: np.ndarray
    widths: tuple[int, int]
    plus: np.ndarray
    minus: np.ndarray
    units: pa.Array


@lru_cache(1024)
def _facts_of_few(levels: tuple[str, ...]) -> _Facts:
    """The facts of few values, remembered: tables have many columns with the same few words."""
    return _facts(pa.array(levels, pa.string()))


def _facts(levels: pa.Array) -> _Facts:
    def where(mask: pa.Array) -> np.ndarray:
        return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)

    fitting, dates = _fitting(levels)
    digits = pc.match_substring_regex(levels, "^[0-9]{1,18}$")
    lengths = pc.binary_length(levels.filter(digits)).to_numpy(zero_copy_only=False)
    return _Facts(
        ~where(pc.is_in(levels, value_set=pa.array(sorted(MISSING), levels.type))),
        fitting,
        dates,
        where(pc.is_inf(DECIMAL.parse(levels))),
        where(pc.match_substring_regex(levels, "^0[0-9]{1,17}$")),
        where(digits),
        where(pc.match_substring_regex(levels, "^[0-9]{19,}$")),
        (int(lengths.min()), int(lengths.max())) if len(lengths) else (1 << 30, 0),
        where(pc.equal(levels, "+")),
        where(pc.equal(levels, "-")),
        unit_of(levels),
    )


def _counted_units(units: pa.Array, counts: np.ndarray) -> Counter[str]:
    """How often each unit occurs, the most frequent ones."""
    if units.null_count == len(units):
        return Counter()
    encoded = units.dictionary_encode()
    given = encoded.indices.is_valid().to_numpy(zero_copy_only=False)
    totals = np.bincount(encoded.indices.drop_null().to_numpy(), counts[given]).astype(int)
    found = Counter(dict(zip(encoded.dictionary.to_pylist(), totals.tolist(), strict=True)))
    return Counter(dict(found.most_common(_MOST_EXAMPLES)))


def _fitting(levels: pa.Array) -> tuple[dict[str, np.ndarray], DateFits]:
    """Which of the values each form can read; only values with a digit are numbers or dates, or infinite."""
    found, dates = {name: np.zeros(len(levels), dtype=bool) for name in FORMS}, DateFits(())
    for name in ("BOOLEAN", "SPELLED"):
        found[name] = fits(FORMS[name], levels)
    rest = pc.match_substring_regex(levels, "[0-9∞]|(?i:^[+-]?inf)").to_numpy(zero_copy_only=False)
    for names in (("WHOLE", "DECIMAL", "POINT", "COMMA", "BOUND", "BOUND COMMA"), ("TIME",)):
        if not rest.any():
            return found, dates
        others = levels.filter(pa.array(rest))
        for name in names:
            found[name][rest] = fits(FORMS[name], others)
        rest = rest & ~found["DECIMAL"]
    if rest.any():
        dates = fits_dates(levels.filter(pa.array(rest)))
        for name, mask in zip((*_DATE_NAMES, *_ZONED_NAMES), dates.masks, strict=True):
            found[name][rest] = mask
    return found, dates


def _trimmed(text: pa.Array) -> pa.Array:
    return pc.utf8_trim_whitespace(text)


def convert(form: TextForm, text: pa.Array) -> pa.Array:
    """Text in the type of the form: null where it is missing, does not fit or is an infinite number.

    Examples
    --------
    >>> convert(POINT, pa.array(["1,234.5", "15 %", "-", "inf"])).to_pylist()
    [1234.5, 15.0, None, None]
    """
    if form is NOTHING:
        return pa.nulls(len(text))
    plain = form.kind == "number" and not form.decimal_comma
    values = _cast(text, form.type) if plain else None
    if values is None:
        encoded = _trimmed(text).dictionary_encode()
        values = form.parse(encoded.dictionary).take(encoded.indices)
    if pa.types.is_floating(form.type) and not pc.all(pc.is_finite(values)).as_py():
        values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, form.type))
    return values


def misfit_rows(form: TextForm, text: pa.Array) -> list[int]:
    """The numbers of the rows whose value the form cannot read."""
    trimmed = _trimmed(text)
    absent = pc.is_in(trimmed, value_set=pa.array([None, *sorted(MISSING)], trimmed.type))
    unread = pc.and_(pc.is_null(form.parse(trimmed)), pc.invert(absent))
    return np.flatnonzero(unread.to_numpy(zero_copy_only=False)).tolist()
