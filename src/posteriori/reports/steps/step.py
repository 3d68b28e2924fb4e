"""A step: formula, calculation and numbers; and what all of them use to write the numbers down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.reports.markup import Content, Equations, Figures, Words

__all__ = ["Step", "joined", "named_blocks", "norm", "numbered", "numbers", "small"]


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a calculation.

    Attributes
    ----------
    key : str
        A short name: "gradient".
    title : str
    formula : Equations
        What is calculated, in general.
    calculation : tuple of Paragraph, Equations and Table
        The same with numbers filled in.
    values : mapping from str to float or ndarray
        The results in full precision.
    """

    key: str
    title: str
    formula: Equations
    calculation: tuple[Content, ...]
    values: Mapping[str, Any]

    def to_markdown(self) -> str:
        """Formula and calculation, without the title."""
        return "\n\n".join(["In general:", self.formula.to_markdown(), "With numbers:", *_each(self, "to_markdown")])

    def to_latex(self) -> str:
        """Formula and calculation, without the title."""
        return "\n\n".join(["In general:", self.formula.to_latex(), "With numbers:", *_each(self, "to_latex")])


def _each(step: Step, method: str) -> list[str]:
    return [getattr(content, method)() for content in step.calculation]


def joined(parts: Iterable[Equations]) -> Equations:
    """All lines in one display."""
    return Equations(tuple(row for part in parts for row in part.rows))


def numbered(names: Iterable[str]) -> list[str]:
    """The parts of a list in a sentence: 1 is "dry", 2 is "rain"."""
    return [part for i, name in enumerate(names) for part in (f"{', ' if i else ''}{i + 1} is ", Words(f'"{name}"'))]


def numbers(values: np.ndarray, show: Figures) -> list[str]:
    """Numbers of a vector or matrix, row by row; what is lost in rounding beside the largest is zero."""
    return [cell for row in show.matrix(values).rows for cell in row]


def norm(values: np.ndarray) -> float:
    """The Euclidean norm over all entries."""
    return float(np.sqrt((values**2).sum()))


def small(value: float, show: Figures) -> str:
    """A number that tends to zero: below 1e-12 it is rounding error, and looks different on every machine."""
    return show.number(value) if value >= 1e-12 else "<10^{-12}"


def named_blocks(H: np.ndarray, K: int, letter: str = "H") -> dict[str, np.ndarray]:
    """H_11, H_12, ...: all K x K blocks."""
    D = len(H) // K
    blocks = H.reshape(K, D, K, D)
    return {f"{letter}_{k + 1}{j + 1}": blocks[k, :, j, :] for k in range(K) for j in range(K)}
