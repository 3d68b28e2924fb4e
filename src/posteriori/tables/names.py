"""Names of columns as evidence: what a name says about whole numbers in the column."""

from __future__ import annotations

import re
import unicodedata
from enum import Enum

__all__ = ["NameSays", "is_nameless", "name_says", "names_rows"]


class NameSays(Enum):
    """What the name of a column says about whole numbers in it."""

    IDENTIFIER = "identifier"
    """It names or numbers rows: id, customer_id, PassengerId, rownames, no name at all."""
    NUMBER = "number"
    """It may number rows, or count something: no, number, index, X."""
    TIME = "time"
    """It is a point in time, or measured: year, date, week, age, price."""
    NOTHING = "nothing"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_IDENTIFIERS = _words(
    "id ids uuid guid uid pid rowid rownames rowname rownum rownumber caseid recid seqn seqno serialno ssn isbn imei "
    "lfdnr idnum idno identifier identificador identifiant kennung matricule mrn"
)
_ROWS = _words(
    "applicant case client cliente customer individual instance observation obs participant passenger patient person "
    "record rec respondent row seq serial specimen subject user"
)
"""What rows are called: a column of this name numbers them."""
_ENTITIES = _ROWS | _words(
    "account animal booking car company contract device document employee event family file house household "
    "image invoice item line loan member order player plot policy product sample school sequence session site store "
    "student survey ticket transaction visit acct cust doc emp hh hosp img pat pers prod pt resp std stud subj trans"
)
"""Things that have numbers; as the whole name of a column they may be quantities."""
_FILLERS = _words("of the de du des do der")
_NUMBERINGS = _words("no nr num number idx index key code nbr nummer numero codigo")
_TIMES = _words(
    "year years yr date datetime time timestamp ts epoch month months week day days hour hours minute second quarter "
    "period decade season unix stamp"
)
_QUANTITIES = _words("age dose depth height weight distance temperature price income salary score")
"""What is measured, and may be sorted, with every value once."""
_NAMELESS = re.compile(r"(unnamed:?[\s_]*\d+.*|column 1|\.\.\.1|__index_level_\d+__)?", re.IGNORECASE)
"""How R, readr, pandas and our own reader call a column without a name."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def name_says(name: str) -> NameSays:
    """What a name says about a column of whole numbers.

    Examples
    --------
    >>> [name_says(name).value for name in ("PassengerId", "account number", "Unnamed: 0", "subject", "ID2")]
    ['identifier', 'identifier', 'identifier', 'identifier', 'identifier']
    >>> [name_says(name).value for name in ("no", "X", "year", "grid", "paid", "width")]
    ['number', 'number', 'time', 'nothing', 'nothing', 'nothing']
    >>> [name_says(name).value for name in ("Kundennummer", "Número", "MRN", "age")]
    ['identifier', 'number', 'identifier', 'time']
    """
    if is_nameless(name):
        return NameSays.IDENTIFIER
    words = [word.lower() for word in _WORD.findall(_without_accents(name))]
    stems = [word for word in words if not word.isdigit() and word not in _FILLERS]
    if any(word in _IDENTIFIERS or _is_joined(word) for word in [*stems, "".join(stems)]):
        return NameSays.IDENTIFIER
    if any(word in _TIMES or word in _QUANTITIES for word in stems):
        return NameSays.TIME
    if stems and all(word in _ENTITIES or word in _NUMBERINGS for word in stems):
        sure = len(stems) > 1 if stems[-1] in _NUMBERINGS else stems[-1] in _ROWS
        return NameSays.IDENTIFIER if sure else NameSays.NUMBER
    return NameSays.NUMBER if re.fullmatch(r"X1?|#|№|n[°º]|column \d+", name.strip()) else NameSays.NOTHING


def is_nameless(name: str) -> bool:
    """Whether a name is what some program calls a column without one."""
    return _NAMELESS.fullmatch(name.strip()) is not None


def _without_accents(text: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))


def names_rows(name: str) -> bool:
    """Whether a name is that of an identifier."""
    return name_says(name) is NameSays.IDENTIFIER


def _is_joined(word: str) -> bool:
    """Whether a word is a thing and its numbering in one: passengerid, custno, Kundennummer."""
    if word.endswith("nummer") and word != "nummer":
        return True
    for end in ("id", "no", "nr", "num", "number", "index", "idx"):
        stem = word.removesuffix(end)
        if stem != word and stem in _ENTITIES:
            return True
    return False
