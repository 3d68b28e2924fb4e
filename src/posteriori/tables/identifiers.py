"""Identifiers among numbers: columns that number the rows and say nothing about them.

Whole numbers that are all different are suspicious where repeats were to be expected. N draws from R equally likely
values are all different with the probability

    p = (1 - 1/R) (1 - 2/R) ... (1 - (N-1)/R),

and with a smaller one if some values are more likely than others, so that p is a bound for every measurement of R
possible values. R is counted in units of the greatest common divisor of all differences. Row numbers have R = N, row
numbers after a split R = 1.3 N or so: p is about e^-N or still very small. How small it must be depends on further
evidence: the order of the file, and the column's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from posteriori.tables.names import NameSays, name_says

__all__ = [
    "FEWEST_IDENTIFIERS",
    "MOST_HELD",
    "Numbering",
    "merge_numberings",
    "number_identifier",
    "numbering",
    "text_identifier",
]

MOST_HELD = 1 << 16
"""Distinct values that are held one by one; of more a random sample is held."""

FEWEST_IDENTIFIERS = 50
"""Text with no more distinct values than this is an identifier only if its name says so."""

_MOST_TERMS = 100_000
_EXACT = 2.0**53
"""Up to here a float64 is exact."""
_HEAD = 256
_FEWEST_NEARLY_UNIQUE = 10
_FEWEST_NUMBERED = 5
_YEARS = (1500, 2200)


@dataclass(frozen=True, eq=False)
class Numbering:
    """Whole numbers of one column as far as they may number rows; two of them merge, in the order of the rows.

    Attributes
    ----------
    named : bool
        Whether the column's name says that it is an identifier.
    count : int
    first, last, low, high : float
    rising, falling : bool
        Whether each value is greater (less) than the one before it.
    step : int
        The greatest common divisor of all differences; 0 for a single value, or where values repeat.
    repeats : bool
        Whether a value was seen twice.
    held : ndarray
        Distinct values: all of them or, at a `thinning` of t, those whose hashes end in t zero bits. Empty where a
        repeat was seen and the name is no evidence: then the column is not an identifier.
    """

    named: bool
    count: int = 0
    first: float = np.nan
    last: float = np.nan
    low: float = np.inf
    high: float = -np.inf
    rising: bool = True
    falling: bool = True
    step: int = 0
    repeats: bool = False
    held: np.ndarray = field(default_factory=lambda: np.empty(0))
    thinning: int = 0

    @property
    def n_distinct(self) -> float:
        """The number of distinct values, estimated if only a sample of them is held."""
        return len(self.held) * 2.0**self.thinning

    @property
    def in_order(self) -> bool:
        """Whether the rows are sorted by the column, each value once."""
        return self.rising or self.falling

    @property
    def n_possible(self) -> float:
        """R: the values from the lowest to the highest, in steps."""
        return (self.high - self.low) / self.step + 1 if self.step else 1.0

    @property
    def log_chance(self) -> float:
        """log p: N draws from R equally likely values are all different; only if none repeats."""
        N, R = self.count, self.n_possible
        if self.thinning and not self.in_order:
            # each value that was drawn was drawn once: Poisson numbers of draws, given that they are not 0
            mean = N / R
            return len(self.held) * float(np.log(mean) - mean - np.log(-np.expm1(-mean)))
        return float(np.log1p(-np.arange(min(N, _MOST_TERMS, R)) / R).sum())


def numbering(values: np.ndarray, *, named: bool = False) -> Numbering | None:
    """The numbering of a column's values (N,), none of them missing; None if one of them is not whole.

    `named` says whether the column's name is that of an identifier.

    >>> numbering(np.array([10.0, 30.0, 20.0])).step
    10
    """
    if not len(values):
        return Numbering(named)
    if not (_are_whole(values[:_HEAD]) and _are_whole(values)):
        return None
    rising, falling = bool((values[1:] > values[:-1]).all()), bool((values[1:] < values[:-1]).all())
    first, last, low, high = (float(value) for value in (values[0], values[-1], values.min(), values.max()))
    head = values[:_HEAD]
    repeats = len(np.unique(head)) < len(head)  # most columns that repeat do so at once
    held = np.empty(0)
    if rising or falling:
        held = np.array(values if rising else values[::-1])
    elif named or not repeats:
        held = np.unique(values)
        repeats = len(held) < len(values)
    with np.errstate(over="ignore"):
        step = 0 if repeats else _divisor(values - values[0])
    return _bounded(Numbering(named, len(values), first, last, low, high, rising, falling, step, repeats, held))


def merge_numberings(a: Numbering | None, b: Numbering | None) -> Numbering | None:
    """The numbering of the rows of both, a's first."""
    if a is None or b is None:
        return None
    if not a.count or not b.count:
        return a if a.count else b
    thinning = max(a.thinning, b.thinning)
    both = np.concatenate([_thinned(a.held, thinning), _thinned(b.held, thinning)])
    held = np.unique(both)
    repeats = a.repeats or b.repeats or len(held) < len(both)
    return _bounded(
        Numbering(
            a.named,
            a.count + b.count,
            a.first,
            b.last,
            min(a.low, b.low),
            max(a.high, b.high),
            a.rising and b.rising and a.last < b.first,
            a.falling and b.falling and a.last > b.first,
            0 if repeats else _divisor(np.array([a.step, b.step, b.first - a.first])),
            repeats,
            held,
            thinning,
        )
    )


def _bounded(found: Numbering) -> Numbering:
    """A numbering with no more values than are needed."""
    if found.repeats and not found.named:
        return replace(found, held=np.empty(0))
    while len(found.held) > MOST_HELD:
        thinning = found.thinning + 1
        found = replace(found, held=_thinned(found.held, thinning), thinning=thinning)
    return found


def _are_whole(values: np.ndarray) -> bool:
    return bool((values == np.floor(values)).all())


def _divisor(differences: np.ndarray) -> int:
    """The greatest common divisor of whole numbers; 1 where they are too large to be exact."""
    if np.abs(differences).max() > _EXACT:
        return 1
    return int(np.gcd.reduce(differences.astype(np.int64)))


def _thinned(values: np.ndarray, thinning: int) -> np.ndarray:
    """The values whose hashes (splitmix64) end in as many zero bits."""
    if not thinning:
        return values
    z = values.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values[((z ^ (z >> np.uint64(31))) & np.uint64(2**thinning - 1)) == 0]


def number_identifier(name: str, found: Numbering | None, *, integer: bool) -> str | None:
    """Why a column of numbers is an identifier; None if it is not.

    Parameters
    ----------
    name : str
    found : Numbering or None
    integer : bool
        Whether the column's type is that of whole numbers.

    Examples
    --------
    >>> number_identifier("a", numbering(np.arange(1.0, 21.0)[::-1]), integer=True)
    'identifier: whole numbers from 1 to 20, each once'
    >>> number_identifier("a", numbering(np.array([3.0, 1.0, 7.0])), integer=True)
    """
    if found is None or found.count < 2:
        return None
    says = name_says(name)
    if found.count >= _FEWEST_NUMBERED and not found.repeats:
        if integer and max(abs(found.low), abs(found.high)) > _EXACT and says is not NameSays.TIME:
            return "identifier: whole numbers of 16 digits and more, each once"
        if np.exp(found.log_chance) < _most_likely(found, says):
            return _describe(found)
    if says is NameSays.IDENTIFIER and _nearly_unique(found.n_distinct, found.count):
        return f"identifier by its name: {found.n_distinct:.0f} distinct whole numbers in {found.count} rows"
    return None


def _most_likely(found: Numbering, says: NameSays) -> float:
    """The probability of no repeat by chance below which numbers are taken for those of rows."""
    complete = found.step == 1 and found.n_possible == found.count
    # counted from 0 or 1; of rows that were taken out the first may be among them
    from_start = found.step == 1 and 0 <= found.low <= 1 + 5 * (found.n_possible / found.count - 1)
    if complete and found.in_order and found.low in (0, 1):
        return 0.05  # 1..N from N = 5 on
    if says is NameSays.TIME:
        counted = from_start and (complete or found.in_order)  # 1, 2, 3, ... is a time only in name
        return 1e-4 if counted else 0.0
    if says is NameSays.NUMBER:
        return 0.2 if found.in_order else 1e-2
    if from_start:
        return 0.05 if found.in_order else 1e-3
    is_year = found.count <= 250 and _YEARS[0] <= found.low and found.high <= _YEARS[1]
    if is_year:
        return 0.0
    # an experiment by plan is evenly spaced too, and rarely has more than 20 points
    return 1e-7 if found.in_order and found.step == 1 else 1e-9


def _describe(found: Numbering) -> str:
    once = "each once" if found.in_order or not found.thinning else f"each once among {len(found.held)} looked at"
    if found.n_possible == found.count:
        steps = f" in steps of {found.step}" if found.step > 1 else ""
        return f"identifier: whole numbers from {found.low:.0f} to {found.high:.0f}{steps}, {once}"
    return f"identifier: {found.count} whole numbers between {found.low:.0f} and {found.high:.0f}, {once}"


def text_identifier(name: str, n_distinct: int, n_present: int) -> str | None:
    """Why a column of text is an identifier; None if it is not.

    >>> text_identifier("name", 60, 100)
    'identifier: 60 distinct values in 100 rows'
    """
    if n_distinct > max(FEWEST_IDENTIFIERS, n_present / 2):
        return f"identifier: {n_distinct} distinct values in {n_present} rows"
    if n_present > 1 and name_says(name) is NameSays.IDENTIFIER and _nearly_unique(n_distinct, n_present):
        return f"identifier by its name: {n_distinct} distinct values in {n_present} rows"
    return None


def _nearly_unique(n_distinct: float, n_present: int) -> bool:
    """More than half as many values as rows; in few rows all of them different."""
    return n_distinct == n_present or n_distinct > max(_FEWEST_NEARLY_UNIQUE, n_present / 2)
