"""What a decision costs beyond its matrix product."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import records
from benchmarks.turns import by_turns

SHAPES = {"1M x 20 x 20": (1_000_000, 20, 20), "1M x 5 x 3": (1_000_000, 5, 3), "100k x 100 x 100": (100_000, 100, 100)}
QUICK = {"10k x 20 x 20": (10_000, 20, 20)}
GOAL = 2.0

NOTES = f"""\
`decide(P, utility)` (actions, expected utilities of all actions, margin and value of information, with its checks of
P) against `P @ U` alone, by turns in one process, medians; "ratio" is the median over turns. n rows x K classes x A
actions. Goal: at most {GOAL:g} times the product at 1M x 20 x 20."""

HEADER = ("n x K x A", "P @ U (s)", "decide (s)", "ratio")


def run(out: Path, *, quick: bool = False) -> None:
    """Time every shape."""
    from posteriori import Utility, decide

    rng = np.random.default_rng(0)
    lines = []
    for name, (n, K, A) in (QUICK if quick else SHAPES).items():
        P = rng.dirichlet(np.ones(K), size=n)
        U = rng.normal(size=(K, A))
        utility = Utility(U, range(K), range(A))
        times = by_turns({"product": lambda P=P, U=U: P @ U, "decide": lambda P=P, u=utility: decide(P, u)}, 15)
        ratio = float(np.median(np.divide(times["decide"], times["product"])))
        seconds = {key: float(np.median(values)) for key, values in times.items()}
        lines.append({"problem": name, **seconds, "ratio": ratio})
        print(name, seconds, f"{ratio:.2f}", flush=True)
    stored = records.store(out / "deciding.jsonl", lines)
    rows = [
        [line["problem"], f"{line['product']:.4f}", f"{line['decide']:.4f}", f"{line['ratio']:.2f}"] for line in stored
    ]
    records.write(out / "deciding.md", records.markdown("The cost of a decision", NOTES, HEADER, rows))
