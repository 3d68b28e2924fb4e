"""The choice of a form: what a column of text is read as, decided by its tally, and what the user is told of it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from posteriori.tables.text.columns import FORMS, Tally
from posteriori.tables.text.forms import (
    BOOLEAN,
    BOUND_COMMA,
    CATEGORY,
    COMMA,
    NOTHING,
    SIGNS,
    TextForm,
    in_unit,
    is_bound,
    marks_of,
    with_marks,
)

__all__ = ["LABEL", "ChosenForm", "choose"]

LABEL = "label"
"""What `choose` may be told of a column of classes: numbers and booleans if all values are such, otherwise text."""

_MOST_MISFITS = 0.1
"""The greatest share of words among numbers or dates; with more of them the column is text."""
_MOST_REFUSED = 0.5
"""The greatest share of values that are not of the kind of the fit; with more of them the column is refused."""
_FEWEST_IN_UNIT = 3
"""Different numbers with one word after them, below which they are levels."""
_MOST_MARKS = 2
"""Different words for missing values that many numbers may have among them, however often."""
_BOUNDED = {"WHOLE": "BOUND", "DECIMAL": "BOUND", "POINT": "BOUND", "COMMA": "BOUND COMMA"}
"""Forms of numbers, and those that read bounds too."""
_SILENT = {"None", "none", "NONE", "missing", "Missing"}
"""Words that are missing values among numbers without being mentioned. In text they are words like others."""
_WORDS = {"number": "number", "boolean": "boolean", "duration": "time", "date": "date"}


class ChosenForm(NamedTuple):
    """The form of a column, and sentences about it for the user; `refused` says why it cannot be read as asked."""

    form: TextForm
    notes: tuple[str, ...] = ()
    refused: str | None = None


def choose(
    seen: Tally, *, kind: str | None = None, decimal_comma: bool = False, day_first: bool | None = None
) -> ChosenForm:
    """The form in which a column is read.

    Parameters
    ----------
    seen : Tally
    kind : str or None
        The kind of the column in the fit, the name of a form, or "label"; None lets the values decide.
    decimal_comma : bool
        Whether 1,234 is less than two, where the column itself does not show it.
    day_first : bool or None
        Whether 03/04 is in April, where the column itself does not show it; None if nobody knows.

    Returns
    -------
    ChosenForm
    """
    if kind == LABEL:
        return _choose_label(seen)
    if kind is not None and kind != "empty":
        return _choose_known(seen, kind, decimal_comma, day_first)
    if seen.n_values == 0:
        return ChosenForm(SIGNS if seen.n_plus else NOTHING)
    if seen.coded:
        why = "more digits than a number can keep" if seen.n_long else "leading zeros"
        return ChosenForm(CATEGORY, (f"holds codes ({why}) and is read as text",))
    if seen.fitting["BOOLEAN"] == seen.n_values:
        return ChosenForm(BOOLEAN)
    best = max(
        (
            _best(seen, group, decimal_comma, day_first)
            for group in ("number", "duration", "date", "date with time zone")
        ),
        key=lambda name: seen.fitting[name],
    )
    n_misfits = seen.n_values - seen.fitting[best]
    with_unit = _in_unit(seen, next(iter(seen.units), ""))
    if n_misfits > _MOST_MISFITS * seen.n_values and with_unit is not None:
        return with_unit
    if n_misfits and FORMS[best].kind == "number" and (other := _with_bounds_or_marks(seen, best, n_misfits)):
        return other
    if n_misfits > _MOST_MISFITS * seen.n_values or (_sign_levels(seen) and n_misfits):
        return _text(seen, best, n_misfits)
    return _with_notes(seen, best, n_misfits)


def _with_bounds_or_marks(seen: Tally, best: str, n_misfits: int) -> ChosenForm | None:
    """Numbers with a few bounds such as <5, or many with more of them or of one or two words; None if it is not so."""
    few = n_misfits <= _MOST_MISFITS * seen.n_values
    if not (few or seen.has_many_numbers) or 2 * n_misfits > seen.n_values:
        return None
    bounded = _BOUNDED[best]
    n_others = seen.n_values - seen.fitting[bounded]
    if n_others < n_misfits and n_others <= _MOST_MISFITS * seen.n_values:
        return _with_notes(seen, bounded, n_others)
    all_known = sum(seen.misfits.values()) == n_misfits and len(seen.misfits) <= _MOST_MARKS
    return _with_notes(seen, best, n_misfits) if all_known and not _sign_levels(seen) else None


def _in_unit(seen: Tally, unit: str, *, remembered: bool = False) -> ChosenForm | None:
    """Numbers with one word after nearly all of them, 998 cc; None if they are not.

    One or two numbers are levels, such as "0 no". What was read so in the fit is read so again.
    """
    n_misfits = seen.n_values - seen.units[unit] - seen.fitting["POINT"]
    n_numbers = sum(word.endswith(unit) for word in seen.misfits)
    few = n_numbers < _FEWEST_IN_UNIT and not remembered
    if not seen.units[unit] or few or n_misfits > (_MOST_REFUSED if remembered else _MOST_MISFITS) * seen.n_values:
        return None
    missing = f"; {_count(n_misfits, 'other value')} taken as missing" if n_misfits else ""
    notes = () if remembered and not n_misfits else (f"is read as numbers in {_shown(unit)}{missing}",)
    return ChosenForm(in_unit(unit), notes)


def _choose_label(seen: Tally) -> ChosenForm:
    """Classes: never dates, never words as missing values."""
    if seen.n_values == 0:
        return ChosenForm(SIGNS if seen.n_plus else NOTHING)
    if not seen.coded:
        for name in ("WHOLE", "DECIMAL", "BOOLEAN"):
            if seen.fitting[name] == seen.n_values:
                return ChosenForm(FORMS[name])
    return ChosenForm(SIGNS if _sign_levels(seen) else CATEGORY)


def _choose_known(seen: Tally, kind: str, decimal_comma: bool, day_first: bool | None) -> ChosenForm:
    """The form of a column whose kind is known from the fit."""
    kind, marks = marks_of(kind)
    kind, _, detail = kind.partition(", ")
    if kind == "category":
        return ChosenForm(SIGNS if detail or _sign_levels(seen) else CATEGORY)
    if detail.startswith("in ") and (with_unit := _in_unit(seen, detail[3:], remembered=True)) is not None:
        return with_unit
    if kind == "boolean":
        best = "SPELLED" if seen.fitting["SPELLED"] >= seen.fitting["POINT"] else "POINT"
    else:
        preferred = {"day first": True, "month first": False}.get(detail, day_first)
        best = _best(seen, kind, decimal_comma or detail == "decimal comma", preferred)
    if detail == "decimal comma" and seen.fitting["COMMA"] >= seen.fitting[best]:
        best = "COMMA"  # 1.234 is more than a thousand, as it was in the fit
    if kind == "number":
        bounded = "BOUND COMMA" if detail == "decimal comma" else _BOUNDED[best]
        best = max(best, bounded, key=lambda name: seen.fitting[name])
    if kind == "number" and seen.fitting["BOOLEAN"] > seen.fitting[best]:
        best = "BOOLEAN"
    n_misfits, n_marks = seen.n_values - seen.fitting[best], sum(seen.misfits[word] for word in marks)
    if n_misfits - n_marks > _MOST_REFUSED * (seen.n_values - n_marks):
        return ChosenForm(FORMS[best], (), f"{_plural(FORMS[best].kind)} expected as in the fit")
    return _with_notes(seen, best, n_misfits, remembered=bool(detail) and FORMS[best].name.endswith(detail))


def _sign_levels(seen: Tally) -> bool:
    return seen.n_plus > 0 and seen.n_minus > 0


def _best(seen: Tally, kind: str, decimal_comma: bool, day_first: bool | None) -> str:
    """The name of the form of this kind that can read most values; of equals, the one that is known to be used."""
    if kind == "number":
        return _best_number(seen, decimal_comma)
    if kind == "duration":
        return "TIME"
    prefix = "DATE" if kind == "date" else "ZONED"
    first, second = (1, 2) if (_by_months(seen) if day_first is None else day_first) else (2, 1)
    names = [f"{prefix} 0", f"{prefix} {first}", f"{prefix} {second}"]
    return max(names, key=lambda name: seen.fitting[name])


def _by_months(seen: Tally) -> bool | None:
    """Whether the first of two numbers is the day because it alone is always 1, as in dates of months."""
    always, varies = 1 << 1, (seen.first | seen.second).bit_count() > 2
    return None if not varies or always not in (seen.first, seen.second) else seen.first == always


def _best_number(seen: Tally, decimal_comma: bool) -> str:
    count = seen.fitting
    people = max(count["POINT"], count["COMMA"])
    if count["WHOLE"] == people:
        return "WHOLE"
    if count["DECIMAL"] == people:
        return "DECIMAL"
    comma = count["COMMA"] > count["POINT"] or (count["COMMA"] == count["POINT"] and decimal_comma)
    return "COMMA" if comma else "POINT"


def _text(seen: Tally, best: str, n_misfits: int) -> ChosenForm:
    """Text, with a note where most of it is something else."""
    form = SIGNS if _sign_levels(seen) else CATEGORY
    if 2 * n_misfits > seen.n_values:
        return ChosenForm(form)
    kind = FORMS[best].kind
    example = next(iter(seen.misfits), None)
    such = "" if example is None or kind != "number" else f", such as {_shown(example)}"
    wrong = f"{n_misfits} of its {seen.n_values} values {_are_not(n_misfits, kind)}"
    return ChosenForm(form, (f"is read as text: {wrong}{such}",))


def _with_notes(seen: Tally, best: str, n_misfits: int, remembered: bool = False) -> ChosenForm:
    """The chosen form, and what the user should know of it, unless it is `remembered` from the fit."""
    form, notes = FORMS[best], []
    bounded = best in _BOUNDED.values()
    if bounded:
        n_bounds = seen.fitting[best] - seen.fitting["POINT" if best == "BOUND" else "COMMA"]
        example = next((word for word in seen.misfits if is_bound(word)), None)
        such = "" if example is None else f", such as {_shown(example)},"
        notes.append(f"has {_count(n_bounds, 'bound')}{such} read as the number in {'it' if n_bounds == 1 else 'them'}")
    if form in (COMMA, BOUND_COMMA) and not remembered:
        notes.append("is read with decimal commas (1,5 is one and a half)")
    if form.kind.startswith("date") and ", " in form.name and not remembered:
        other = best[:-1] + ("2" if best.endswith("1") else "1")
        unclear = seen.fitting[best] == seen.fitting[other]
        order = form.name.partition(", ")[2]
        notes.append(f"has dates that are read {order}{', which its values do not show' if unclear else ''}")
    if seen.n_infinite and form.kind == "number":
        notes.append(f"has {_count(seen.n_infinite, 'infinite number')}, taken as missing")
    silent = sum(count for word, count in seen.misfits.items() if word in _SILENT)
    if n_misfits > silent:
        unread_words = Counter({w: n for w, n in seen.misfits.items() if not (bounded and is_bound(w))})
        words = _counted_words(unread_words) if form.kind == "number" else ""
        unread = n_misfits - silent
        notes.append(f"has {_count(unread, 'value')} that {_are_not(unread, form.kind)}, taken as missing{words}")
    if form.kind == "number" and 0 < len(seen.misfits) <= _MOST_MARKS and not bounded:
        form = with_marks(form, seen.misfits)
    return ChosenForm(form, tuple(notes))


def _counted_words(misfits: Counter[str], most: int = 3) -> str:
    shown = [(word, count) for word, count in misfits.most_common() if word not in _SILENT]
    words = [f"{_shown(word)} {'once' if count == 1 else f'{count} times'}" for word, count in shown[:most]]
    return f": {', '.join(words)}{', ...' if len(shown) > most else ''}" if words else ""


def _shown(word: str, most: int = 30) -> str:
    return repr(word if len(word) <= most else f"{word[:most]}...")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _plural(kind: str) -> str:
    return f"{_WORDS[kind.partition(' ')[0]]}s"


def _are_not(n: int, kind: str) -> str:
    return f"is not a {_plural(kind)[:-1]}" if n == 1 else f"are not {_plural(kind)}"
