"""One record per run: its fields, JSON lines on disk, and Markdown tables."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.adapters import Adapter, library_version
from benchmarks.measure import GAP, Measurement, relative_gap


@dataclass(frozen=True)
class Record:
    """A run of one library on one problem; void unless ``converged``."""

    problem: str
    shape: tuple[int, int, int]
    """(N, D, K)"""
    role: str
    """"search" (single run), "reference" (tight run for J*), "timed" (median of ``repeats``) or "skipped"."""
    library: str
    version: str
    solver: str
    tol: float | None
    threads: int | None
    repeats: int
    seconds: float
    peak_mb: float | None
    objective: float
    gap: float
    """(J - J*) / |J*|, J* the lowest objective of all runs on this problem."""
    gradient_norm: float
    converged: bool
    status: str
    iterations: int | None
    passes: float | None
    certificate: float | None
    """The relative gap that the library itself states."""

    @classmethod
    def of(
        cls,
        problem: str,
        shape: tuple[int, int, int],
        role: str,
        adapter: Adapter,
        measured: Measurement,
        repeats: int = 1,
    ) -> Record:
        """Return the record of a measurement; its gap is known when all runs are in (`with_gaps`)."""
        info = measured.info
        return cls(
            problem=problem,
            shape=shape,
            role=role,
            library=adapter.library,
            version=library_version(adapter.library),
            solver=adapter.solver,
            tol=adapter.tol,
            threads=adapter.threads,
            repeats=repeats,
            seconds=measured.seconds,
            peak_mb=measured.peak_mb,
            objective=measured.objective,
            gap=math.nan,
            gradient_norm=measured.gradient_norm,
            converged=False,
            status=info.get("status", ""),
            iterations=info.get("iterations"),
            passes=info.get("passes"),
            certificate=info.get("certificate"),
        )

    def describe(self) -> str:
        """Return the run in one line."""
        setting = f"{self.solver} tol={self.tol} threads={self.threads}"
        run = f"{self.role:9} {self.library:12} {setting:42}"
        return f"{run} {self.seconds:10.4g} s  {self.objective:.12g}  {self.status}"


def with_gap(record: Record, reference: float) -> Record:
    """Return the record with its gap to J* and whether that is small enough."""
    gap = relative_gap(record.objective, reference)
    return replace(record, gap=gap, converged=gap <= GAP)


@cache
def machine() -> dict[str, Any]:
    """Return where and with what the runs were made."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor()
    versions = {name: library_version(name) for name in ("posteriori", "numpy", "scipy", "scikit-learn")}
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), **versions}


def store(path: Path, lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write runs as JSON lines in place of earlier ones on the same problems; return all of the file."""
    new = [
        {key: known(value) for key, value in line.items()} | {"machine": machine(), "date": today()} for line in lines
    ]
    again = {line["problem"] for line in new}
    kept = [line for line in read(path) if line["problem"] not in again]
    write(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in kept + new))
    return read(path)


def known(value: Any) -> Any:
    """Return the value, or None for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a JSON lines file, none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(text)
    temporary.replace(path)


def today() -> str:
    """Return the date in UTC."""
    return datetime.now(UTC).date().isoformat()


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def markdown(
    title: str, notes: str, header: Sequence[str], rows: Iterable[Sequence[object]], *, after: str = ""
) -> str:
    """Return a page with one table, what comes after it, and the machine it was made on."""
    place = machine()
    versions = ", ".join(f"{name} {place[name]}" for name in ("posteriori", "scikit-learn", "numpy", "scipy", "python"))
    where = f"{place['cpu']}, {place['cores']} cores; {versions}; {today()}."
    return "\n\n".join(filter(None, (f"# {title}", notes, table(header, rows), after, where))) + "\n"
