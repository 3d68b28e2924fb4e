"""What the page is made of: tables and figures in HTML, and names short enough for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import isfinite, isinf, isnan
from typing import Any

__all__ = ["drawable", "figure", "labels_of", "number", "percent", "rows_word", "shortened", "table"]

_LONGEST = 36
"""Characters of a name in tables and charts."""
_MOST_LOW = 15
"""Rows of a table that is shown in its full height."""


def table(
    head: Sequence[str], body: Sequence[Sequence[str]], caption: str, words: tuple[int, ...] = (), kind: str = ""
) -> str:
    """A table in a box of its own to scroll in; the first cell of a row heads it. Cells are HTML already."""
    kinds = [" class='words'" if i in words else "" for i in range(len(head))]
    top = "".join(f"<th scope='col'{kind}>{cell}</th>" for cell, kind in zip(head, kinds, strict=True))
    lines = "".join(
        f"<tr><th scope='row'>{row[0]}</th>"
        + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=True))
        + "</tr>"
        for row in body
    )
    caption = escape(caption)
    return (
        f"<div class='wide{' tall' if len(body) > _MOST_LOW else ''}' tabindex='0' role='group' "
        f"aria-label='{caption}'><table class='{kind}'><caption>{caption}</caption>"
        f"<thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def figure(key: str, title: str, caption: str, numbers: str) -> str:
    """The place of a chart, its caption, and its numbers."""
    return (
        f"<figure><figcaption><strong>{escape(title)}.</strong> {escape(caption)}</figcaption>"
        f"<div class='place' id='{key}'></div>"
        f"<details><summary>Numbers of this chart</summary>{numbers}</details></figure>"
    )


def drawable(values: Any) -> list[float | None]:
    """Numbers that JSON can hold: None, which is not drawn, for what has no finite value.

    >>> drawable([1, float("inf")])
    [1.0, None]
    """
    return [float(value) if isfinite(value) else None for value in values]


def labels_of(classes: Iterable[Any], longest: int = _LONGEST) -> list[str]:
    """Names short enough to be shown, and all different.

    >>> labels_of(["a", 1])
    ['a', '1']
    """
    short: list[str] = []
    for label in classes:
        name = shortened(label, longest) or "(empty)"
        short.append(name if name not in short else f"{name} ({len(short)})")
    return short


def shortened(value: Any, longest: int = _LONGEST) -> str:
    r"""The text of a value on one line, without its middle if it is long.

    >>> shortened("a\nb"), shortened("0123456789", 7)
    ('a b', '0123…89')
    """
    text = " ".join(str(value).encode("utf-8", "replace").decode().split())
    return text if len(text) <= longest else f"{text[: longest - 3]}…{text[-2:]}"


def number(value: Any, digits: int = 4) -> str:
    """A number as text, in words where it has no finite value.

    >>> number(0.123456), number(float("nan")), number(-float("inf"))
    ('0.1235', 'unknown', 'minus infinite')
    """
    value = float(value)
    if isnan(value):
        return "unknown"
    if isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    return f"{value:.{digits}g}"


def percent(share: float) -> str:
    """A share as text, in percent.

    >>> percent(0.125)
    '12.5 %'
    """
    return f"{100.0 * share:.1f} %"


def rows_word(n: int) -> str:
    """The word for n rows: "row" or "rows"."""
    return "row" if n == 1 else "rows"
