"""Forms of text: how it is read as numbers, booleans, times of day, dates or categories.

A form makes an Arrow array of one type from text without blanks around it. What does not fit the form becomes null, so
that one function says both what a text means and whether it means anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "BOOLEAN",
    "BOUND",
    "BOUND_COMMA",
    "CATEGORY",
    "COMMA",
    "DATES",
    "DECIMAL",
    "MISSING",
    "NOTHING",
    "POINT",
    "SIGNS",
    "SPELLED_BOOLEAN",
    "TIME",
    "WHOLE",
    "ZONED_DATES",
    "DateFits",
    "TextForm",
    "fits",
    "fits_dates",
    "in_unit",
    "is_bound",
    "marks_of",
    "unit_of",
    "with_marks",
]

MISSING = frozenset(
    [
        *("", "NA", "N/A", "n/a", "N.A.", "n.a.", "<NA>", "#N/A", "#N/A N/A", "#NA", "NULL", "Null", "null", "\\N"),
        *("NaN", "nan", "NAN", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "NaT"),
        *("#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!"),
        *("?", "??", "???", ".", "..", "...", "-", "--", "---", "–", "—"),
    ]
)
"""Text that stands for a missing value in every column, blanks around it left out."""

_BLANKS = " \u00a0\u202f\u2009"
_CURRENCY = (
    r"(?:(?:US|A|C|R|HK|NZ)?\$|[£€¥₹₩₽₺₪]|USD|EUR|GBP|JPY|CHF|CAD|AUD|NZD|INR|CNY|RMB|HKD|SGD|SEK|NOK|DKK|PLN|CZK|HUF"
    r"|BRL|RUB|MXN|ZAR|TRY|Rs\.?)"
)
_DECORATED = (
    rf"^(?P<open>\()?(?P<sign>[+-])?[{_BLANKS}]*{_CURRENCY}?[{_BLANKS}]*(?P<second>[+-])?"
    rf"(?P<core>(?:[0-9](?:[0-9.,'’{_BLANKS}]*[0-9.,])?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?)"
    rf"[{_BLANKS}]*(?:{_CURRENCY}|%)?(?P<close>\))?$"
)
"""A number with a sign, a currency or a percent sign, or in parentheses, as accountants write what is negative."""


@dataclass(frozen=True)
class TextForm:
    """A way to read text.

    Attributes
    ----------
    kind : str
        As `TableEncoder` calls it: "number", "boolean", "duration", "category", "date", "date with time zone", "empty".
    name : str
        The kind, and after a comma what else must be known to read the same text again in the same way.
    type : pyarrow DataType
    parse : function
        From an array of text to one of this type, null where text does not fit.
    """

    kind: str
    name: str
    type: pa.DataType
    parse: Callable[[pa.Array], pa.Array]

    @property
    def decimal_comma(self) -> bool:
        """Whether 1.5 is fifteen hundred or nothing, as a comma is the decimal mark."""
        return self.name.startswith(COMMA.name)


def fits(form: TextForm, text: pa.Array) -> np.ndarray:
    """Which of the texts the form can read, (n,) booleans.

    Examples
    --------
    >>> fits(COMMA, pa.array(["1,5", "1.234,5", "-3", "1.5"])).tolist()
    [True, True, True, False]
    """
    return form.parse(text).is_valid().to_numpy(zero_copy_only=False)


def _matching(text: pa.Array, pattern: str, *, ignore_case: bool = False) -> pa.Array:
    """The texts that match, null for the others."""
    mask = pc.match_substring_regex(text, pattern, ignore_case=ignore_case)
    return pc.if_else(mask, text, pa.scalar(None, text.type))


def _parsed_where(text: pa.Array, pattern: str, kind: pa.DataType, parse: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """What `parse` makes of the texts that match, null for the others: to match is quick, to take apart is not."""
    mask = pc.fill_null(pc.match_substring_regex(text, pattern), False)
    if not pc.any(mask).as_py():
        return pa.nulls(len(text), kind)
    found = mask.to_numpy(zero_copy_only=False)
    return parse(text.filter(mask)).take(pa.array(np.cumsum(found) - 1, mask=~found))


def _plain_minus(text: pa.Array) -> pa.Array:
    return pc.replace_substring(text, "−", "-")


# Numbers


def _whole(text: pa.Array) -> pa.Array:
    digits = _matching(_plain_minus(text), r"^[+-]?[0-9]{1,18}$")
    return pc.cast(pc.replace_substring(digits, "+", ""), pa.int64())


def _decimal(text: pa.Array) -> pa.Array:
    number = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|∞"
    found = _matching(_plain_minus(text), rf"^[+-]?(?:{number})$", ignore_case=True)
    return pc.cast(pc.replace_substring(found, "∞", "inf"), pa.float64())


def _decorated(text: pa.Array, *, point: str, thousands: str) -> pa.Array:
    """Numbers with currencies, percent signs and thousands separators; those that are plain are read as they are."""
    groups = rf"[1-9][0-9]{{0,2}}(?:[{thousands}'’{_BLANKS}][0-9]{{3}})+"
    core = rf"^(?:(?:{groups}|[0-9]+)(?:[{point}][0-9]*)?|[{point}][0-9]+)(?:[eE][+-]?[0-9]+)?$"

    def parse(candidates: pa.Array) -> pa.Array:
        parts = pc.extract_regex(candidates, _DECORATED)
        opened, sign, second, digits, closed = (
            pc.struct_field(parts, name) for name in ("open", "sign", "second", "core", "close")
        )
        digits = pc.replace_substring_regex(_matching(digits, core), rf"[{thousands}'’{_BLANKS}]", "")
        values = pc.cast(pc.replace_substring(digits, point, "."), pa.float64())
        bracketed = pc.equal(opened, "(")
        minus = pc.or_(pc.or_(pc.equal(sign, "-"), pc.equal(second, "-")), bracketed)
        values = pc.if_else(minus, pc.negate(values), values)
        return pc.if_else(pc.equal(bracketed, pc.equal(closed, ")")), values, pa.scalar(None, pa.float64()))

    return _parsed_where(_plain_minus(text), _DECORATED, pa.float64(), parse)


def _point(text: pa.Array) -> pa.Array:
    return pc.coalesce(_decimal(text), _decorated(text, point=".", thousands=","))


def _comma(text: pa.Array) -> pa.Array:
    return _decorated(text, point=",", thousands=".")


WHOLE = TextForm("number", "number", pa.int64(), _whole)
"""Whole numbers of up to 18 digits."""
DECIMAL = TextForm("number", "number", pa.float64(), _decimal)
"""Numbers as programs write them; infinity is one, and made missing later."""
POINT = TextForm("number", "number", pa.float64(), _point)
"""Numbers as people write them: 1,234.5, $ 12, 15 %, 1 234.5."""
COMMA = TextForm("number", "number, decimal comma", pa.float64(), _comma)
"""Numbers with a decimal comma: 1.234,5, 12 €, 1 234,5."""


_BOUND = rf"^(?:<=?|>=?|[≤≥~≈])[{_BLANKS}]*[0-9.,]|^[0-9.,]+\+$"
"""A number with a sign that says that it is the least or the greatest possible one, or about right."""


_MISSING = ", missing "


def with_marks(form: TextForm, words: Collection[str]) -> TextForm:
    """The form with a name that remembers words that stood for missing values."""
    return replace(form, name=f"{form.name}{_MISSING}{json.dumps(list(words))}")


def marks_of(name: str) -> tuple[str, list[str]]:
    """The name of a form without the words that stand for missing values, and these words.

    >>> marks_of('number, missing ["unknown"]')
    ('number', ['unknown'])
    """
    name, _, words = name.partition(_MISSING)
    return name, json.loads(words) if words else []


def is_bound(text: str) -> bool:
    """Whether a text is a bound.

    >>> is_bound("<5"), is_bound("90+"), is_bound("5")
    (True, True, False)
    """
    return re.search(_BOUND, text) is not None


def _bounds(text: pa.Array, number: TextForm) -> pa.Array:
    """Bounds as the numbers in them."""

    def parse(candidates: pa.Array) -> pa.Array:
        return number.parse(pc.utf8_trim(candidates, characters=f"<>=≤≥~≈+{_BLANKS}"))

    return pc.coalesce(number.parse(text), _parsed_where(text, _BOUND, number.type, parse))


BOUND = TextForm("number", POINT.name, pa.float64(), lambda text: _bounds(text, POINT))
"""Numbers, and bounds of them: <5, > 1,000, 90+."""
BOUND_COMMA = TextForm("number", COMMA.name, pa.float64(), lambda text: _bounds(text, COMMA))
"""The same with decimal commas: <0,5."""


_UNIT = r"[^0-9\s.,:;()_-]"
_WITH_UNIT = (
    rf"^[+-]?[0-9]+(?:,[0-9]{{3}})*(?:\.[0-9]+)?"
    rf"(?:[{_BLANKS}](?P<apart>{_UNIT}{{1,12}})|(?P<close>{_UNIT}{{2,12}}))$"
)
"""A number and one word after it, of two letters or more if no blank is between them: 998 cc, 12km."""
_MASK = "^(?i:xx+)$"
"""What stands for digits that are not shown, as in 120xx."""


def unit_of(text: pa.Array) -> pa.Array:
    """The words after numbers, null where a text is something else.

    Examples
    --------
    >>> unit_of(pa.array(["998 cc", "12km", "12A", "5 red"])).to_pylist()
    ['cc', 'km', None, 'red']
    """

    def parse(candidates: pa.Array) -> pa.Array:
        parts = pc.extract_regex(_plain_minus(candidates), _WITH_UNIT)
        units = pc.binary_join_element_wise(pc.struct_field(parts, "apart"), pc.struct_field(parts, "close"), "")
        return pc.if_else(pc.match_substring_regex(units, _MASK), pa.scalar(None, pa.string()), units)

    return _parsed_where(_plain_minus(text), _WITH_UNIT, pa.string(), parse)


def in_unit(unit: str) -> TextForm:
    """Numbers with this word after them, or without one."""

    def parse(text: pa.Array) -> pa.Array:
        bare = pc.utf8_trim_whitespace(pc.replace_substring_regex(text, f"{re.escape(unit)}$", ""))
        return _point(pc.if_else(pc.ends_with(text, unit), bare, text))

    return TextForm("number", f"number, in {unit}", pa.float64(), parse)


# Booleans and categories


def _boolean(text: pa.Array, true: tuple[str, ...], false: tuple[str, ...]) -> pa.Array:
    lower = pc.utf8_lower(text)
    yes, no = (pc.is_in(lower, value_set=pa.array(words, lower.type)) for words in (true, false))
    return pc.if_else(pc.or_(yes, no), yes, pa.scalar(None, pa.bool_()))


BOOLEAN = TextForm("boolean", "boolean", pa.bool_(), lambda text: _boolean(text, ("true",), ("false",)))
"""true and false, in capitals or not. Other pairs, such as yes and no, are categories, whose words are kept."""
SPELLED_BOOLEAN = TextForm(
    "boolean",
    "boolean",
    pa.bool_(),
    lambda text: _boolean(
        text, ("true", "t", "yes", "y", "on", "1", "1.0"), ("false", "f", "no", "n", "off", "0", "0.0")
    ),
)
"""Booleans in all spellings, for a column that is known to hold them."""


def _unquoted(text: pa.Array) -> pa.Array:
    if not pc.any(pc.starts_with(text, '"')).as_py():
        return text
    return pc.replace_substring_regex(text, r'^"((?s:.*))"$', r"\1")


def _category(text: pa.Array, missing: frozenset[str]) -> pa.Array:
    text = pc.cast(_unquoted(text), pa.string())
    absent = pc.is_in(text, value_set=pa.array(sorted(missing), pa.string()))
    return pc.if_else(absent, pa.scalar(None, pa.string()), text)


CATEGORY = TextForm("category", "category", pa.string(), lambda text: _category(text, MISSING))
"""Text without blanks around it."""
SIGNS = TextForm("category", "category, + and -", pa.string(), lambda text: _category(text, MISSING - {"-"}))
"""Text in which - is a value, not a missing one, as + is a value too."""
NOTHING = TextForm("empty", "empty", pa.null(), lambda text: pa.nulls(len(text)))
"""No value at all."""


# Times and dates

_CLOCK = (
    r"(?P<H>[0-9]{1,3}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,9}))?)?"
    r"(?: ?(?P<p>[AaPp])\.?[Mm]\.?)?"
)
_OFFSET = r"[0-9]{2}(?::?[0-9]{2})?"
_ZONE = rf"Z|(?:UTC|GMT)(?:[+-](?:{_OFFSET}|[0-9](?::[0-9]{{2}})?))?|[+-]{_OFFSET}"
_AFTER_DATE = rf"(?:(?:T|,? +){_CLOCK} ?(?P<z>{_ZONE})?)?$"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\.?,? +)?"
_MONTH = r"(?P<m>(?:[Jj]an|[Ff]eb|[Mm]ar|[Aa]pr|[Mm]ay|[Jj]u[nl]|[Aa]ug|[Ss]ep|[Oo]ct|[Nn]ov|[Dd]ec)[a-z]*|[A-Z]{3,9})"
_YEAR = r"(?P<y>[0-9]{4}|[0-9]{2})"
_LIKE_A_DATE = (
    r"^(?:[0-9]{4}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{2}|(?:[A-Za-z]{3,9}[., ]+)?"
    r"(?:[0-9]{1,2}(?:st|nd|rd|th)?[-/. ]*[A-Za-z]{3}|[A-Za-z]{3,9}\.? +[0-9]{1,2}[ ,a-z]+[0-9]{4}"
    r"|[A-Za-z]{3,9}\.?[-/, ]+[0-9]{4}$))"
)
_DATE_PATTERNS = (
    ("ymd", rf"^(?P<y>[0-9]{{4}})[-/.](?P<m>[0-9]{{1,2}})[-/.](?P<d>[0-9]{{1,2}}){_AFTER_DATE}"),
    ("ymd", r"^(?P<y>[0-9]{4})[-/](?P<m>[0-9]{2})$"),
    ("ymd", rf"^(?P<d>[0-9]{{1,2}})\.(?P<m>[0-9]{{1,2}})\.{_YEAR}{_AFTER_DATE}"),
    ("ymd", rf"^{_MONTH}\.?[-/, ]+(?P<y>[0-9]{{4}})$"),
    ("pair", rf"^(?P<m>[0-9]{{1,2}})[-/](?P<d>[0-9]{{1,2}})[-/]{_YEAR}{_AFTER_DATE}"),
    ("ymd", rf"^{_WEEKDAY}(?P<d>[0-9]{{1,2}})(?:st|nd|rd|th)?[-/. ]*{_MONTH}\.?[-/., ]*{_YEAR}{_AFTER_DATE}"),
    ("ymd", rf"^{_WEEKDAY}{_MONTH}\.? +(?P<d>[0-9]{{1,2}})(?:st|nd|rd|th)?,? +(?P<y>[0-9]{{4}}){_AFTER_DATE}"),
)
"""Dates in order of year, month and day, with the month as a word or with points, which are always day.month.year, and
those whose order must be known ("pair").
"""


def _integers(field: Any) -> np.ndarray:
    """Whole numbers, 0 where there is nothing."""
    filled = pc.if_else(pc.equal(pc.coalesce(field, pa.scalar("")), ""), pa.scalar("0"), field)
    return pc.cast(filled, pa.int64()).to_numpy(zero_copy_only=False)


def _texts(field: Any) -> np.ndarray:
    return pc.coalesce(field, pa.scalar("")).to_numpy(zero_copy_only=False).astype(str)


def _clock(fields: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds since midnight, and which of them a clock can show."""
    hours, minutes, seconds = (_integers(fields[name]) for name in "HMS")
    half = np.char.lower(_texts(fields["p"]))
    hours = np.where(half == "", hours, hours % 12 + 12 * (half == "p"))
    fraction = _integers(pc.utf8_slice_codeunits(pc.utf8_rpad(pc.coalesce(fields["f"], pa.scalar("")), 6, "0"), 0, 6))
    ok = (minutes < 60) & (seconds < 61)
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction, ok


def _time(text: pa.Array) -> pa.Array:
    """Times of day as durations."""

    def parse(candidates: pa.Array) -> pa.Array:
        parts = pc.extract_regex(candidates, rf"^{_CLOCK}$")
        micros, ok = _clock({name: pc.struct_field(parts, name) for name in "HMSfp"})
        return pa.array(micros.astype("m8[us]"), mask=~ok)

    return _parsed_where(text, rf"^{_CLOCK}$", pa.duration("us"), parse)


TIME = TextForm("duration", "duration", pa.duration("us"), _time)
"""Times of day, and lengths of time, with a colon: seconds since midnight."""


def _month_numbers(field: Any) -> np.ndarray:
    """1 to 12 from numbers or names; 0 for another word."""
    words = np.char.lower(_texts(field))
    named = np.array([_MONTHS.index(word[:3]) + 1 if word[:3] in _MONTHS else 0 for word in words])
    return np.array([int(word) if word.isdigit() else number for word, number in zip(words, named, strict=True)])


def _zone_minutes(zone: np.ndarray) -> np.ndarray:
    """Minutes east of Greenwich."""

    def minutes(text: str) -> int:
        found = re.search(r"([+-])([0-9]{1,2}):?([0-9]{2})?$", text)
        if found is None:
            return 0
        return (60 * int(found[2]) + int(found[3] or 0)) * (-1 if found[1] == "-" else 1)

    return np.array([minutes(text) for text in zone])


@dataclass(frozen=True)
class _DateFields:
    """What texts say of dates, (n,) each: year, month and day, or two numbers in an order that must be known."""

    found: np.ndarray
    paired: np.ndarray
    years: np.ndarray
    months: np.ndarray
    days: np.ndarray
    microseconds: np.ndarray
    """Since midnight, in UTC where there is a zone; -1 where no clock shows such a time."""
    zoned: np.ndarray

    def dates(self, order: str | None, zoned: bool) -> np.ndarray:
        """datetime64[us], NaT where there is not a date with or without a zone, as asked for."""
        swapped = self.paired & (order == "day")
        months, days = np.where(swapped, self.days, self.months), np.where(swapped, self.months, self.days)
        first = ((self.years - 1970) * 12 + np.clip(months, 1, 12) - 1).astype("M8[M]")
        date = first.astype("M8[D]") + (days - 1)
        ok = self.found & (months >= 1) & (months <= 12) & (days >= 1) & (date.astype("M8[M]") == first)
        ok &= (self.years > 0) & (self.microseconds > -(10**12)) & (self.zoned == zoned)
        if order is None:
            ok &= ~self.paired
        return np.where(ok, date.astype("M8[us]") + self.microseconds.astype("m8[us]"), np.datetime64("NaT"))


def _date_fields(text: pa.Array) -> _DateFields:
    """The fields of all texts, each by the pattern that it matches."""
    n = len(text)
    found, paired, zoned = np.zeros((3, n), dtype=bool)
    years, months, days, microseconds = np.ones((4, n), dtype=np.int64)
    for kind, pattern in _DATE_PATTERNS:
        mask = pc.match_substring_regex(text, pattern)
        if not pc.any(mask).as_py():
            continue
        parts = pc.extract_regex(text.filter(mask), pattern)
        groups = {field.name: pc.struct_field(parts, field.name) for field in parts.type}
        here = mask.to_numpy(zero_copy_only=False)
        found[here], paired[here] = True, kind == "pair"
        years[here], months[here] = _years(groups["y"]), _month_numbers(groups["m"])
        days[here] = _integers(groups["d"]) if "d" in groups else 1
        microseconds[here], zoned[here] = _time_and_zone(groups)
    return _DateFields(found, paired, years, months, days, microseconds, zoned)


def _years(field: Any) -> np.ndarray:
    """Years, those of two digits between 1950 and 2049."""
    years = _integers(field)
    short = pc.equal(pc.utf8_length(field), 2).to_numpy(zero_copy_only=False)
    return np.where(short, years + np.where(years < 50, 2000, 1900), years)


def _time_and_zone(groups: dict[str, Any]) -> tuple[np.ndarray | int, np.ndarray | bool]:
    """Microseconds since midnight in UTC, far below zero where there is no such time, and whether a zone is given."""
    if "H" not in groups:
        return 0, False
    micros, ok = _clock(groups)
    zone = _texts(groups["z"])
    shifted = micros - 60_000_000 * _zone_minutes(zone)
    return np.where(ok & (micros <= 86_400_000_000), shifted, -(10**13)), zone != ""


def _dates(text: pa.Array, *, order: str | None, zoned: bool) -> pa.Array:
    """Dates in the order of year, month and day, with names of months, and those in the given order of numbers."""
    kind = pa.timestamp("us", tz="UTC" if zoned else None)

    def parse(candidates: pa.Array) -> pa.Array:
        return pa.array(_date_fields(candidates).dates(order, zoned), pa.timestamp("us")).cast(kind)

    return _parsed_where(text, _LIKE_A_DATE, kind, parse)


_ORDERS = (("", None), (", day first", "day"), (", month first", "month"))


def _date_forms(kind: str, zoned: bool) -> tuple[TextForm, ...]:
    type_ = pa.timestamp("us", tz="UTC" if zoned else None)
    return tuple(
        TextForm(kind, kind + name, type_, partial(_dates, order=order, zoned=zoned)) for name, order in _ORDERS
    )


DATES = _date_forms("date", False)
"""Dates: those that are clear in themselves, 31/01/2024, and 01/31/2024."""
ZONED_DATES = _date_forms("date with time zone", True)
"""Dates whose time has a zone, as instants in UTC."""


@dataclass(frozen=True)
class DateFits:
    """Which of some texts each of DATES and ZONED_DATES can read, and the numbers before the year in 31/01/2024.

    `first` and `second` are whole numbers whose bits say which of 0 to 63 occur.
    """

    masks: tuple[np.ndarray, ...]
    first: int = 0
    second: int = 0


def fits_dates(text: pa.Array) -> DateFits:
    """Which of the texts can be read as dates, in all forms at once."""
    likely = pc.match_substring_regex(text, _LIKE_A_DATE).to_numpy(zero_copy_only=False)
    masks = tuple(np.zeros(len(text), dtype=bool) for _ in range(2 * len(_ORDERS)))
    if not likely.any():
        return DateFits(masks)
    fields = _date_fields(text.filter(pa.array(likely)))
    forms = [(order, zoned) for zoned in (False, True) for _, order in _ORDERS]
    for mask, (order, zoned) in zip(masks, forms, strict=True):
        mask[likely] = ~np.isnat(fields.dates(order, zoned))
    return DateFits(masks, _bits(fields.months[fields.paired]), _bits(fields.days[fields.paired]))


def _bits(numbers: np.ndarray) -> int:
    return sum(1 << int(number) for number in np.unique(numbers) if number < 64)
