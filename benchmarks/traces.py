"""Numbers in prose, traced to the results that they are taken from: ``python -m benchmarks.traces README.md``.

A number of a page is followed by a comment that says where it was measured. The reader does not see it:

    fits take 4.0<!-- softmax.md; 1M-20-5; peer / ours --> times as long
    lower on 12<!-- quality.md; "default {} of 16 against the peer" --> of 16 sets

The first form names a file of benchmarks/results, words with which cells of one row begin, and the column. The second
has a sentence of that file, with {} where the number stands. ``TRACE over TRACE`` is the ratio of two numbers. A number
agrees with its trace if the trace rounds to it. ``<!-- not measured -->`` marks a number that only looks measured.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
NOT_MEASURED = "not measured"

_NUMBER = re.compile(r"[-+−]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?")
_TRACED = re.compile(rf"({_NUMBER.pattern})([^\w<]{{0,4}})<!--\s*(.*?)\s*-->", re.DOTALL)
_UNIT = r"(?:times|fold|s|ms|µs|seconds?|milliseconds?|kB|MB|GB|%|nats?|points)"
_WITH_UNIT = rf"(?:{_NUMBER.pattern})(?=\**\s*(?:<!--[^>]*-->)?\s*{_UNIT}(?!\w))"
_AFTER_WORD = rf"(?:log-loss|accuracy|coverage|utility|skill)(?: of| is| was|:)?\s+(?:{_NUMBER.pattern})"
_CLAIM = re.compile(rf"{_WITH_UNIT}|{_AFTER_WORD}")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`|\]\([^)]*\)|^(?: {4}|\t)[^\n]*", re.DOTALL | re.MULTILINE)


class UntraceableError(ValueError):
    """A trace that does not lead to one number."""


@dataclass(frozen=True)
class TracedNumber:
    """A number of a page, and where it comes from."""

    line: int
    shown: str
    trace: str

    @property
    def agrees(self) -> bool:
        """Whether the number measured rounds to the one shown."""
        return self.trace == NOT_MEASURED or rounds_to(value_of(self.trace), self.shown)


def traced_numbers(text: str) -> list[TracedNumber]:
    """All numbers of a page of Markdown that a comment follows."""
    return [
        TracedNumber(text.count("\n", 0, match.start()) + 1, match[1], " ".join(match[3].split()))
        for match in _TRACED.finditer(text)
        if _is_trace(match[3])
    ]


def claims_without_trace(text: str) -> list[str]:
    """Passages of a page that look measured, a number with a unit or after the name of a score, and say not where."""
    prose = _CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    found, remarks = [], [comment.span() for comment in _COMMENT.finditer(prose)]
    for match in _CLAIM.finditer(prose):
        if any(start < match.start() < end for start, end in remarks):
            continue
        after = prose[match.end() : match.end() + 200].lstrip(" \n*%")
        if not (after.startswith("<!--") and _is_trace(after[4:].partition("-->")[0])):
            line = prose.count("\n", 0, match.start()) + 1
            found.append(f"line {line}: ...{' '.join(prose[max(0, match.start() - 40) : match.end() + 30].split())}...")
    return found


def value_of(trace: str) -> float:
    """The number to which a trace leads."""
    numerator, over, denominator = trace.partition(" over ")
    if over:
        return value_of(numerator) / value_of(denominator)
    name, _, rest = (part.strip() for part in trace.partition(";"))
    path = RESULTS / name
    if not path.is_file():
        raise UntraceableError(f"{trace!r}: benchmarks/results has no file {name!r}")
    text = path.read_text(encoding="utf-8")
    if rest.startswith('"'):
        return _in_sentence(text, rest.strip('"'), trace)
    steps = [step.strip() for step in rest.split(";")]
    if len(steps) < 2:
        raise UntraceableError(f"{trace!r}: after the file come words of a row and a column, or a sentence in quotes")
    return _in_table(text, steps[:-1], steps[-1], trace)


def rounds_to(value: float, shown: str) -> bool:
    """Whether a value is the number shown, to the digits shown."""
    number = as_number(shown)
    mantissa, _, exponent = shown.lower().partition("e")
    digits = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return abs(value - number) <= 0.5 * 10.0**-digits * (1 + 1e-9)


def as_number(text: str) -> float:
    """A number as it is written: 1,000,000 or −0.5."""
    return float(text.replace(",", "").replace("−", "-"))


def tables(text: str) -> list[list[list[str]]]:
    """Tables of Markdown, each a list of rows of cells, the names of the columns first."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip().strip("*`") for cell in line.strip().strip("|").split("|")]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                found[-1].append(cells)
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def _is_trace(comment: str) -> bool:
    return comment.strip() == NOT_MEASURED or bool(re.match(r"\s*[\w-]+\.md\s*;", comment))


def _in_sentence(text: str, sentence: str, trace: str) -> float:
    before, _, after = sentence.partition("{}")
    pattern = rf"{re.escape(before)}({_NUMBER.pattern}){re.escape(after)}".replace(r"\ ", r"\s+")
    found = re.findall(pattern, text)
    if len(found) != 1:
        raise UntraceableError(f"{trace!r}: the file has this sentence {len(found)} times")
    return as_number(found[0])


def _in_table(text: str, words: list[str], column: str, trace: str) -> float:
    cells = []
    for names, *rows in tables(text):
        if column in names:
            matching = [row for row in rows if all(any(cell.startswith(word) for cell in row) for word in words)]
            cells += [row[names.index(column)] for row in _most_alike(matching, words)]
    if len(cells) != 1:
        raise UntraceableError(
            f"{trace!r}: {len(cells)} rows of tables with a column {column!r} begin with these words"
        )
    number = _NUMBER.search(cells[0])
    if number is None:
        raise UntraceableError(f"{trace!r}: no number in {cells[0]!r}")
    return as_number(number[0])


def _most_alike(rows: list[list[str]], words: list[str]) -> list[list[str]]:
    """The rows in which most words are a whole cell, not its beginning alone."""
    whole = [sum(word in row for word in words) for row in rows]
    return [row for row, n in zip(rows, whole, strict=True) if n == max(whole)]


def main() -> None:
    """Say of every number of the pages named whether it agrees with its trace, and which claims have none."""
    wrong = 0
    for path in map(Path, sys.argv[1:]):
        text = path.read_text(encoding="utf-8")
        for number in traced_numbers(text):
            try:
                verdict = "ok" if number.agrees else f"WRONG, measured {value_of(number.trace):g}"
            except UntraceableError as error:
                verdict = f"WRONG, {error}"
            wrong += verdict != "ok"
            print(f"{path}:{number.line}: {number.shown} <- {number.trace}: {verdict}")
        for claim in claims_without_trace(text):
            wrong += 1
            print(f"{path}: no trace: {claim}")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
