r"""A calculation as text: words, equations and tables, written once, rendered as Markdown or as LaTeX.

Mathematics is written in a small part of LaTeX. In Markdown it becomes plain text that reads like the glossary, sum_n
for ``\sum_{n}`` and x^T for ``x^{\top}``, so that it is legible in a terminal and a notebook alike.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

__all__ = [
    "Content",
    "Equations",
    "Figures",
    "Matrix",
    "Paragraph",
    "Table",
    "Words",
    "WrittenSum",
    "equation",
    "plain",
]

_TERMS_PER_LINE = 4
_ROUNDING = 1e-15
"""Numbers below are zero but for rounding, and look different on every machine."""
_LINE = 100
"""Characters in a line of text."""
_WIDE = 10
"""Tables with more columns are shrunk to the width of a LaTeX page."""

_TO_PLAIN = [
    (r"([_^])\{([^{}]*)\}", r"\1\2"),
    (r"\\(?:mathrm|text)\{([^{}]*)\}", r"\1"),
    (r"\\[td]?frac\{([^{} ]*)\}\{([^{} ]*)\}", r"\1/\2"),
    (r"\\[td]?frac\{([^{} ]*)\}\{([^{}]*)\}", r"\1/(\2)"),
    (r"\\[td]?frac\{([^{}]*)\}\{([^{} ]*)\}", r"(\1)/\2"),
    (r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)"),
    (r"\\top\b", "T"),
    (r"\\cdot\b", "*"),
    (r"\\approx\b", "~"),
    (r"\\le\b", "<="),
    (r"\\ldots\b", "..."),
    (r"\\lvert | \\rvert", "|"),
    (r"\\quad\b", " "),
    (r"\\[,;]", " "),
    (r"\^\*", "*"),
    (r"\\([a-zA-Z]+)", r"\1"),  # all others are called what they are: alpha, log, sum, Sigma
    (r"[{}]", ""),
    (r" +", " "),
]


class Words(str):
    """Literal text, such as a label, to be escaped where other strings are mathematics."""

    __slots__ = ()


def plain(mathematics: str) -> str:
    r"""Mathematics as plain text.

    Examples
    --------
    >>> plain(r"H_{kl} = \sum_{n} P_{nk} x_n x_n^{\top} + \tfrac{\alpha}{2}")
    'H_kl = sum_n P_nk x_n x_n^T + alpha/2'
    """
    for pattern, replacement in _TO_PLAIN:
        mathematics = re.sub(pattern, replacement, mathematics)
    return mathematics


def _latex_math(mathematics: str) -> str:
    """Powers of ten as such: 1.5e-06 is 1.5 times 10 to the -6."""
    return re.sub(r"(?<=\d)e([+-]\d+)", lambda power: rf" \cdot 10^{{{int(power[1])}}}", mathematics)


def _markdown_words(words: str) -> str:
    return re.sub(r"([\\|*<`$\[\]])", r"\\\1", " ".join(words.split()))


def _latex_words(words: str) -> str:
    named = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    named |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    named |= {"[": "{[}", "*": "{*}"}  # they mean something else at the beginning of a row
    return re.sub(r"[\\~^<>|\[*&%$#_{}]", lambda found: named.get(found[0], "\\" + found[0]), " ".join(words.split()))


# Numbers


@dataclass(frozen=True)
class Figures:
    """Numbers as they are shown, with a fixed number of decimals.

    Examples
    --------
    >>> Figures(4).number(2 / 3), Figures(4).number(-0.00012345), Figures(4).factor(-2 / 3)
    ('0.6667', '-1.2345e-04', '(-0.6667)')
    """

    digits: int

    def number(self, value: float) -> str:
        """A number with `digits` decimals; with a power of ten where these would leave fewer than two figures."""
        if abs(value) < _ROUNDING:
            return f"{0:.{self.digits}f}"
        return f"{value:.{self.digits}{'e' if abs(value) < 10.0 ** (1 - self.digits) else 'f'}}"

    def factor(self, value: float) -> str:
        """A number that follows an operator: in parentheses if negative."""
        return _parenthesised(self.number(value))

    def matrix(self, values: np.ndarray) -> Matrix:
        """A matrix, or a vector as a column; what is lost in rounding beside the largest entry is zero."""
        values = np.asarray(values, dtype=float)
        values = np.where(np.abs(values) <= 1e-12 * np.abs(values).max(), 0.0, values)
        return Matrix(tuple(tuple(self.number(v) for v in row) for row in np.atleast_2d(values.T).T))

    def products(self, a: Iterable[float], b: Iterable[float], *, exact: bool = False) -> WrittenSum:
        """a_1 b_1 + a_2 b_2 + ...; the second factors in full if they are `exact`."""
        second = given if exact else self.number
        return WrittenSum(
            tuple(
                rf"{self.number(x) if i == 0 else self.factor(x)} \cdot {_parenthesised(second(y))}"
                for i, (x, y) in enumerate(zip(a, b, strict=True))
            )
        )


def given(value: float) -> str:
    """A number that was given, not computed, in full: '0.5', '-2'."""
    return f"{value + 0.0:.12g}"


def given_matrix(values: np.ndarray) -> Matrix:
    """A matrix of given numbers, shown in full; a vector is a column."""
    return Matrix(tuple(tuple(given(v) for v in row) for row in np.atleast_2d(np.asarray(values, dtype=float).T).T))


def _parenthesised(number: str) -> str:
    return f"({number})" if number.startswith("-") else number


# Equations


@dataclass(frozen=True)
class Matrix:
    """A matrix of numbers, each as it is shown."""

    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> list[str]:
        """Plain text, one line per row."""
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        return [
            "[ " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " ]"
            for row in self.rows
        ]

    def to_latex(self) -> str:
        """A pmatrix."""
        rows = r" \\ ".join(" & ".join(map(_latex_math, row)) for row in self.rows)
        return rf"\begin{{pmatrix}} {rows} \end{{pmatrix}}"


@dataclass(frozen=True)
class WrittenSum:
    """Terms to be added, broken over lines where they are many."""

    terms: tuple[str, ...]

    def pieces(self) -> list[str]:
        """One string per line."""
        starts = range(0, len(self.terms), _TERMS_PER_LINE)
        return [" + ".join(self.terms[start : start + _TERMS_PER_LINE]) for start in starts]


Piece = str | Matrix


@dataclass(frozen=True)
class _Row:
    """One line: left side, relation, and what follows it, side by side."""

    left: str
    relation: str
    right: tuple[Piece, ...]

    def lines(self, width: int) -> list[str]:
        blocks = [piece.lines() if isinstance(piece, Matrix) else [plain(piece)] for piece in self.right]
        head = f"{plain(self.left):<{width}} {plain(self.relation):<1}"
        return _beside([[head], *blocks])

    def to_latex(self) -> str:
        right = " ".join(piece.to_latex() if isinstance(piece, Matrix) else _latex_math(piece) for piece in self.right)
        relation = self.relation or r"\quad"
        return f"{self.left} &{relation} {right}".strip()


def _beside(blocks: Sequence[list[str]]) -> list[str]:
    """Blocks of lines side by side, centred on the tallest."""
    height = max(map(len, blocks))
    columns = []
    for block in blocks:
        above = (height - len(block)) // 2
        width = max(map(len, block))
        padded = [""] * above + block + [""] * (height - above - len(block))
        columns.append([line.ljust(width) for line in padded])
    return [" ".join(parts).rstrip() for parts in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Equations:
    """Displayed lines, aligned at their relation."""

    rows: tuple[_Row, ...]

    def __add__(self, other: Equations) -> Equations:
        return Equations(self.rows + other.rows)

    def to_markdown(self) -> str:
        """A block of plain text."""
        width = max(len(plain(row.left)) for row in self.rows)
        blocks = [row.lines(width) for row in self.rows]
        lines = list(blocks[0])
        for above, block in pairwise(blocks):
            lines += [""] * (len(above) > 1 or len(block) > 1) + block
        return "```text\n" + "\n".join(lines) + "\n```"

    def to_latex(self) -> str:
        """An align* environment."""
        rows = " \\\\\n".join(row.to_latex() for row in self.rows)
        return f"\\begin{{align*}}\n{rows}\n\\end{{align*}}"


def equation(left: str, *rights: str | Matrix | WrittenSum | tuple[Piece, ...]) -> Equations:
    r"""Left = right = right = ..., each on a line of its own; a right side may begin with ``\approx``.

    Examples
    --------
    >>> print(equation(r"\log p", r"2 \cdot 3", "6").to_markdown())
    ```text
    log p = 2 * 3
          = 6
    ```
    """
    rows: list[_Row] = []
    for right in rights:
        relation = "="
        if isinstance(right, WrittenSum):
            first, *rest = right.pieces()
            rows.append(_Row("" if rows else left, relation, (first,)))
            rows.extend(_Row("", "", (f"+ {piece}",)) for piece in rest)
            continue
        if isinstance(right, str) and right.startswith(r"\approx "):
            relation, right = r"\approx", right.removeprefix(r"\approx ")
        rows.append(_Row("" if rows else left, relation, right if isinstance(right, tuple) else (right,)))
    return Equations(tuple(rows))


# Words and tables


@dataclass(frozen=True)
class Paragraph:
    """Text with mathematics between dollar signs; parts of type `Words` are taken literally."""

    parts: tuple[str, ...]

    def to_markdown(self) -> str:
        """The text in Markdown, its mathematics as code: it may hold signs that Markdown would interpret."""
        text = "".join(
            _markdown_words(part)
            if isinstance(part, Words)
            else re.sub(r"\$([^$]*)\$", lambda found: f"`{plain(found[1])}`", part)
            for part in self.parts
        )
        return _wrapped(text)

    def to_latex(self) -> str:
        """The text in LaTeX, its mathematics as such."""
        text = "".join(_latex_words(part) if isinstance(part, Words) else _inline_latex(part) for part in self.parts)
        return _wrapped(text)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _LINE, break_long_words=False, break_on_hyphens=False)


def _inline_latex(text: str) -> str:
    """Text outside of dollar signs escaped, mathematics kept; blanks at the ends matter."""
    pieces = text.split("$")
    for i, piece in enumerate(pieces):
        ends = re.fullmatch(r"(\s*)(.*?)(\s*)", piece, re.DOTALL)
        if i % 2 == 0 and ends is not None:
            pieces[i] = ends[1] + _latex_words(ends[2]) + ends[3]
        else:
            pieces[i] = _latex_math(piece)
    return "$".join(pieces)


@dataclass(frozen=True)
class Table:
    """Cells of mathematics or `Words`; columns of words stand left, numbers right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def _left(self) -> list[bool]:
        return [all(isinstance(cell, Words) for cell in column) for column in zip(*self.rows, strict=True)]

    def to_markdown(self) -> str:
        """A table whose columns are aligned in plain text too."""
        cells = [
            [_markdown_words(cell) if isinstance(cell, Words) else plain(cell) for cell in row]
            for row in (self.header, *self.rows)
        ]
        left = self._left()
        widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
        rule = [
            ":" + "-" * (w - 1) if is_left else "-" * (w - 1) + ":" for w, is_left in zip(widths, left, strict=True)
        ]
        lines = [
            [cell.ljust(w) if is_left else cell.rjust(w) for cell, w, is_left in zip(row, widths, left, strict=True)]
            for row in cells
        ]
        return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])

    def to_latex(self) -> str:
        """A centred tabular, shrunk to the page if it has many columns."""
        columns = "".join("l" if is_left else "r" for is_left in self._left())
        header, *rows = (
            " & ".join(_latex_words(c) if isinstance(c, Words) else f"${_latex_math(c)}$" if c else "" for c in row)
            for row in (self.header, *self.rows)
        )
        body = "\n".join(rf"{row} \\" for row in rows)
        tabular = f"\\begin{{tabular}}{{{columns}}}\n\\hline\n{header} \\\\\n\\hline\n{body}\n\\hline\n\\end{{tabular}}"
        if len(columns) > _WIDE:
            tabular = f"\\resizebox{{\\linewidth}}{{!}}{{%\n{tabular}}}"
        return f"\\begin{{center}}\n{tabular}\n\\end{{center}}"


Content = Paragraph | Equations | Table
