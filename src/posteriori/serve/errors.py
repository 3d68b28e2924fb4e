"""Requests that are refused: a status of HTTP and one sentence, with the row and the column that it is about."""

from __future__ import annotations

from typing import Any

__all__ = ["Refusal"]

_LONGEST_SENTENCE, _LONGEST_NAME = 2_000, 500


class Refusal(Exception):
    """A request that is not answered, and why.

    Attributes
    ----------
    status : int
        The status of HTTP: 400 if the request is wrong, 404 if what it names is not there, 413 if it is too large.
    row : int or None
        The row that is wrong, counted from 1.
    column : str or None
        The column that is wrong.
    headers : dict
        Further headers of the response.
    remedy : dict or None
        Options with which the same request would be answered.
    also : dict
        The same in the words of a protocol that has its own.
    """

    def __init__(
        self,
        sentence: str,
        *,
        status: int = 400,
        row: int | None = None,
        column: str | None = None,
        headers: dict[str, str] | None = None,
        remedy: dict[str, str] | None = None,
    ) -> None:
        super().__init__(_short(sentence, _LONGEST_SENTENCE))
        self.status, self.row = status, row
        self.column = None if column is None else _short(column, _LONGEST_NAME)
        self.headers, self.remedy = headers or {}, remedy
        self.also: dict[str, Any] = {}

    def body(self) -> dict[str, Any]:
        """What the client reads: the sentence, and row, column and remedy where they are known."""
        more = {"row": self.row, "column": self.column, "remedy": self.remedy}
        return {"error": str(self)} | {name: value for name, value in more.items() if value is not None} | self.also


def _short(text: str, most: int) -> str:
    """A text that names what was sent, which may be of any length."""
    return text if len(text) <= most else f"{text[:most]}…"
