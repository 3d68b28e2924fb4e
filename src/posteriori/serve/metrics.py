"""What has happened since the start, in the text format of Prometheus.

Each process counts for itself and leaves its sums in a file of a folder that all of them share; whoever is asked adds
all of them up.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from posteriori.serve.answers import Answers

__all__ = ["Metrics"]

_EDGES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_HELP = {
    "posteriori_requests_total": ("counter", "Requests by route and status."),
    "posteriori_request_seconds": ("histogram", "Seconds from the first byte of a request to the last of its answer."),
    "posteriori_rows_total": ("counter", "Rows that were answered."),
    "posteriori_predicted_total": ("counter", "Rows by their most probable class."),
    "posteriori_epistemic_nats_sum": (
        "counter",
        "Epistemic uncertainty of all rows for which it was computed, in nats.",
    ),
    "posteriori_epistemic_nats_count": ("counter", "Rows for which the epistemic uncertainty was computed."),
    "posteriori_epistemic_nats_mean": (
        "gauge",
        "Running mean of the epistemic uncertainty, in nats: recent rows count more.",
    ),
    "posteriori_reloads_total": ("counter", "Model files that were loaded again, by outcome."),
    "posteriori_model_info": ("gauge", "The models that are served."),
}
_MEMORY = 1_000.0
"""Rows over which the running mean forgets."""
_SECONDS_BETWEEN_WRITES = 1.0

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Sums of this process.

    Parameters
    ----------
    folder : Path or None
        Where all processes leave their sums; None if there is only one.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.sums: dict[tuple[str, Labels], float] = defaultdict(float)
        self.means: dict[Labels, float] = {}
        self._written = 0.0

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.sums["posteriori_requests_total", (("route", route), ("status", str(status)))] += 1
        label = ("route", route)
        for edge in _EDGES:
            if seconds <= edge:
                self.sums["posteriori_request_seconds_bucket", (label, ("le", f"{edge:g}"))] += 1
                break  # buckets are added up when they are shown
        self.sums["posteriori_request_seconds_sum", (label,)] += seconds
        self.sums["posteriori_request_seconds_count", (label,)] += 1
        if self.folder is not None and time.monotonic() - self._written > _SECONDS_BETWEEN_WRITES:
            self.write()

    def answered(self, model: str, answers: Answers) -> None:
        """Count rows, the classes that were predicted, and their epistemic uncertainty."""
        name = ("model", model)
        n = answers.n_rows
        self.sums["posteriori_rows_total", (name,)] += n
        codes = answers.values.get("class")
        if codes is not None:
            counts = Counter(codes.tolist()) if n < 100 else dict(enumerate(np.bincount(codes).tolist()))
            for k, count in counts.items():
                self.sums["posteriori_predicted_total", (name, ("class", str(answers.classes[k])))] += count
        epistemic = answers.values.get("epistemic")
        if epistemic is not None:
            self.sums["posteriori_epistemic_nats_sum", (name,)] += float(epistemic.sum())
            self.sums["posteriori_epistemic_nats_count", (name,)] += n
            share, mean = 1.0 - math.exp(-n / _MEMORY), float(epistemic.mean())
            before = self.means.get((name,), mean)
            self.means[(name,)] = before + share * (mean - before)

    def reload(self, model: str, failed: bool) -> None:
        """Count a file that was loaded again."""
        outcome = "failed" if failed else "loaded"
        self.sums["posteriori_reloads_total", (("model", model), ("outcome", outcome))] += 1

    def write(self) -> None:
        """Leave the sums for the other processes."""
        self._written = time.monotonic()
        if self.folder is None:
            return
        lines = [[name, labels, value] for (name, labels), value in list(self.sums.items())]
        means = [[labels, value] for labels, value in list(self.means.items())]
        path = self.folder / self._own_name()
        temporary = path.with_suffix(".part")
        with suppress(OSError):  # the disk is full, or the folder gone: requests are answered all the same
            temporary.write_bytes(orjson.dumps([lines, means]))
            temporary.replace(path)

    def _own_name(self) -> str:
        return f"metrics-{os.getpid()}.json"

    def text(self, models: Mapping[tuple[str, str], str]) -> str:
        """The sums of all processes in the format of Prometheus; `models` are the classes of names and versions."""
        self.write()
        sums, means = self._all()
        for (name, version), kind in models.items():
            sums["posteriori_model_info", (("model", name), ("version", version), ("class", kind))] = 1.0
        for labels, values in means.items():
            sums["posteriori_epistemic_nats_mean", labels] = float(np.mean(values))
        return "".join(self._family(name, kind, words, sums) for name, (kind, words) in _HELP.items())

    def _all(self) -> tuple[dict[tuple[str, Labels], float], dict[Labels, list[float]]]:
        sums = defaultdict(float, self.sums)
        means = defaultdict(list, {labels: [value] for labels, value in self.means.items()})
        others = () if self.folder is None else sorted(self.folder.glob("metrics-*.json"))
        for path in others:
            if path.name == self._own_name():
                continue
            lines, their_means = orjson.loads(path.read_bytes())
            for name, labels, value in lines:
                sums[name, _labels(labels)] += value
            for labels, value in their_means:
                means[_labels(labels)].append(value)
        return sums, means

    def _family(self, name: str, kind: str, words: str, sums: Mapping[tuple[str, Labels], float]) -> str:
        parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        lines = []
        for part in parts:
            found = {labels: value for (known, labels), value in sums.items() if known == name + part}
            if part == "_bucket":
                found = _cumulated(sums, name)
            lines += [f"{name}{part}{_shown(labels)} {_number(value)}\n" for labels, value in sorted(found.items())]
            if part == "_bucket":
                lines.sort(key=_by_edge)
        return f"# HELP {name} {words}\n# TYPE {name} {kind}\n" + "".join(lines) if lines else ""


def _cumulated(sums: Mapping[tuple[str, Labels], float], name: str) -> dict[Labels, float]:
    """Buckets as Prometheus has them: each holds those below it, and the last all."""
    found: dict[Labels, float] = {}
    for (known, labels), count in sums.items():
        if known != f"{name}_count":
            continue
        below = 0.0
        for edge in _EDGES:
            below += sums.get((f"{name}_bucket", (*labels, ("le", f"{edge:g}"))), 0.0)
            found[(*labels, ("le", f"{edge:g}"))] = below
        found[(*labels, ("le", "+Inf"))] = count
    return found


def _by_edge(line: str) -> tuple[str, float]:
    route, _, rest = line.partition(',le="')
    return route, float(rest.partition('"')[0])


def _labels(given: Any) -> Labels:
    return tuple((str(name), str(value)) for name, value in given)


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
