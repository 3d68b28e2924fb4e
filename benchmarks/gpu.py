"""Fits to rows that lie on a GPU: milliseconds, against scikit-learn's LogisticRegression on the same card.

Needs numpy, scipy, scikit-learn and JAX; scikit-learn is timed where PyTorch has a GPU. From a checkout in which
nothing is installed: ``PYTHONPATH=src python -m benchmarks gpu``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest import mock

from benchmarks import problems, records

Size = tuple[int, int, int]
"""N, D, K"""

SIZES: dict[str, Size] = {"1M-100-10": (1_000_000, 100, 10), "4M-50-10": (4_000_000, 50, 10)}
QUICK: dict[str, Size] = {"20k-10-4": (20_000, 10, 4)}
GOALS = {
    ("1M-100-10", "mode"): 29,
    ("1M-100-10", "posterior"): 88,
    ("4M-50-10", "mode"): 36,
    ("4M-50-10", "posterior"): 108,
}
DEFAULTS, DEFAULTS_GOAL = "all defaults", 4.0
"""A fit with nothing set, and the times as long as the mode that it may take."""
REPEATS, QUICK_REPEATS = 9, 2
GAP, TOLS = 1e-8, (1e-4, 1e-6, 1e-8)
PEER_SECONDS = 120

NOTES = f"""\
Normal features, labels of a softmax model, float64; rows and labels lie on the device before a fit begins. "mode" is
`SoftmaxRegression()`, "posterior" `BayesianSoftmaxRegression(prior=1.0, approximation="laplace", posterior="full")`,
"{DEFAULTS}" `BayesianSoftmaxRegression()`, whose goal is {DEFAULTS_GOAL:g} times the mode.
"first" is the first fit, with all compilation; "ms" the median of {REPEATS} later ones, each until its results are on
the host. scikit-learn is `LogisticRegression(solver="lbfgs")` with array-API dispatch on tensors of PyTorch on the same
card, at the loosest tol of {", ".join(f"{tol:g}" for tol in TOLS)} whose objective is within {GAP:g} of the optimum;
"times" are its milliseconds in units of ours for the mode. "gap" is (J - J*) / J*, J* that of a fit with tol=1e-14. A
pass must read X twice: {16e-9 * 1e6 * 100:.2g} GB for 1M x 100, which takes an H200 a third of a millisecond."""

HEADER = ("problem", "N", "D", "K", "device", "who", "what", "first (s)", "ms", "goal", "times", "passes", "gap")


def run(out: Path, *, quick: bool = False) -> None:
    """Run the problems one after another; the results are on disk after each."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".60")  # PyTorch needs memory of the GPU too
    import jax

    if jax.default_backend() == "cpu" and not quick:
        print("gpu: JAX has no GPU; --quick tries the benchmark without one")
        return
    device, repeats = jax.devices()[0].device_kind, QUICK_REPEATS if quick else REPEATS
    for name, size in (QUICK if quick else SIZES).items():
        common = {"problem": f"{name}, {device}", "name": name, "size": size, "device": device}
        ours = [common | line for line in of_ours(name, size, repeats)]
        save(out, ours)
        save(out, [*ours, common | of_peer(size, repeats, ours[0]["reference"])])


def save(out: Path, lines: list[dict[str, Any]]) -> None:
    """Write the lines in place of earlier ones on the same problem, and the page anew."""
    print({key: value for key, value in lines[-1].items() if key != "all_ms"}, flush=True)
    stored = records.store(out / "gpu.jsonl", lines)
    rows = [row(line, stored) for line in stored]
    records.write(out / "gpu.md", records.markdown("Fits on a GPU", NOTES, HEADER, rows))


@contextmanager
def as_if_gpu() -> Iterator[None]:
    """Where JAX has no GPU, its default device stands for one: to try the benchmark."""
    import jax

    from posteriori.rows import dlpack

    if jax.default_backend() != "cpu":
        yield
        return
    with (
        mock.patch.object(dlpack, "first_gpu", return_value=jax.devices()[0]),
        mock.patch.object(dlpack, "on_gpu", lambda X: isinstance(X, jax.Array)),
    ):
        yield


def of_ours(name: str, size: Size, repeats: int) -> list[dict[str, Any]]:
    """Return our times for the mode and the posterior, with rows and labels on the device."""
    import jax

    print(f"{name}: rows are made", flush=True)
    rows = problems.synthetic(*size)
    with jax.enable_x64(True):
        on_device = jax.block_until_ready(jax.device_put(rows))
    with as_if_gpu():
        return of_fits(name, *on_device, repeats)


def of_fits(name: str, X: Any, y: Any, repeats: int) -> list[dict[str, Any]]:
    """Return the times of both fits, and print where they go."""
    from posteriori import BayesianSoftmaxRegression, SoftmaxRegression

    makers: dict[str, Callable[[], Any]] = {
        "mode": SoftmaxRegression,
        "posterior": lambda: BayesianSoftmaxRegression(prior=1.0, approximation="laplace", posterior="full"),
        DEFAULTS: BayesianSoftmaxRegression,
    }
    lines = []
    for what, make in makers.items():
        first, model = clocked(lambda make=make: make().fit(X, y))
        print(f"{name}, {what}: first fit {first:.2f} s", flush=True)
        times = [clocked(lambda make=make: make().fit(X, y))[0] for _ in range(repeats)]
        print(f"{name}, {what}: later ones {sorted(round(1e3 * t, 1) for t in times)} ms", flush=True)
        with profiled() as spent:
            whole, model = clocked(lambda make=make: make().fit(X, y))
        print(profile(spent, whole), flush=True)
        lines.append(
            {"who": "ours", "what": what, "first_seconds": first, "ms": 1e3 * median(times),
             "all_ms": [1e3 * t for t in times], "passes": model.solution_.n_passes,
             "objective": model.solution_.objective}
        )  # fmt: skip
        reference = make().set_params(tol=1e-14).fit(X, y).solution_.objective
        lines[-1] |= {"reference": reference, "gap": max(lines[-1]["objective"] - reference, 0.0) / reference}
    return lines


def clocked(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and its value."""
    start = perf_counter()
    value = function()
    return perf_counter() - start, value


Spent = dict[tuple[str, int], list[float]]
"""Seconds of each call, by what was called and for how many rows."""


@contextmanager
def profiled() -> Iterator[Spent]:
    """Time all that is done with rows, until its results are there."""
    import jax

    from posteriori.rows.gpu import GpuBlocks

    spent: Spent = defaultdict(list)
    sum_over, draw, whole = GpuBlocks.map_sum, GpuBlocks.sample, GpuBlocks.run_on_gpu

    def map_sum(self: Any, kernel: Any, *params: Any, **options: Any) -> Any:
        seconds, value = clocked(lambda: sum_over(self, kernel, *params, **options))
        spent[kernel.__name__, self.n_rows].append(seconds)
        return value

    def sample(self: Any, n_rows: int, rng: Any, **options: Any) -> Any:
        def drawn() -> Any:
            found = draw(self, n_rows, rng, **options)
            jax.block_until_ready(found.X)
            return found

        seconds, value = clocked(drawn)
        spent["sample", n_rows].append(seconds)
        return value

    def descend(self: Any, *params: Any) -> Any:
        seconds, value = clocked(lambda: whole(self, *params))
        spent["descend", self.n_rows].append(seconds)
        return value

    patches = {"map_sum": map_sum, "sample": sample, "run_on_gpu": descend}
    with mock.patch.multiple(GpuBlocks, **patches):
        yield spent


def profile(spent: Spent, whole: float) -> str:
    """Return a table of what was done with rows, and of what is left of the whole time."""
    lines = [f"  {'':20} {'rows':>9} {'calls':>5} {'ms each':>8} {'ms':>8}"]
    for (name, n), times in sorted(spent.items(), key=lambda item: -sum(item[1])):
        lines.append(f"  {name:20} {n:9} {len(times):5} {1e3 * median(times):8.2f} {1e3 * sum(times):8.2f}")
    inside = sum(sum(times) for times in spent.values())
    lines.append(f"  {'outside':20} {'':9} {'':5} {'':8} {1e3 * (whole - inside):8.2f}")
    lines.append(f"  {'whole':20} {'':9} {'':5} {'':8} {1e3 * whole:8.2f}")
    return "\n".join(lines)


# The peer, in a process of its own: SciPy must be told of array APIs before it is imported.


def of_peer(size: Size, repeats: int, best: float) -> dict[str, Any]:
    """Return the time of scikit-learn at the loosest tolerance that is tight enough, or why there is none."""
    line: dict[str, Any] = {"who": "scikit-learn", "what": "mode"}
    command = [sys.executable, "-c", f"from benchmarks import gpu; gpu.peer({size!r}, {repeats})"]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"SCIPY_ARRAY_API": "1"},
            capture_output=True,
            text=True,
            timeout=PEER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return line | {"failure": f"not done after {PEER_SECONDS} s"}
    tried = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    for each in tried:
        print("scikit-learn:", each, flush=True)
    if not tried or "failure" in tried[-1]:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return line | {"failure": tried[-1]["failure"] if tried else last[:200]}
    for each in tried:
        each["gap"] = max(each["objective"] - best, 0.0) / best
    enough = next((each for each in tried if each["gap"] <= GAP), None)
    return line | (enough or {"failure": f"no tol reached a gap of {GAP:g}"})


def peer(size: Size, repeats: int) -> None:
    """Fit by scikit-learn on PyTorch's GPU, with each tolerance; print a line of JSON for each."""
    try:
        import sklearn
        import torch
        from sklearn.linear_model import LogisticRegression

        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch has no GPU")
        X, y = (torch.asarray(a, device="cuda") for a in problems.synthetic(*size))
        with sklearn.config_context(array_api_dispatch=True):
            for tol in TOLS:
                model = LogisticRegression(solver="lbfgs", tol=tol, max_iter=100_000)

                def fit(model: Any = model) -> None:
                    model.fit(X, y)
                    torch.cuda.synchronize()

                first, _ = clocked(fit)
                times = [clocked(fit)[0] for _ in range(min(repeats, max(1, int(20.0 / first))))]
                W, b = (torch.asarray(a, device="cuda") for a in (model.coef_, model.intercept_))
                log_p = torch.log_softmax(X @ W.T + b, dim=1)
                objective = -log_p[torch.arange(len(y)), y].sum() + 0.5 * (W * W).sum()
                found = {"tol": tol, "first_seconds": first, "ms": 1e3 * median(times), "objective": float(objective)}
                version = {"sklearn": sklearn.__version__, "torch": torch.__version__}
                print(json.dumps(found | {"iterations": int(model.n_iter_[0]), "versions": version}), flush=True)
    except Exception as error:  # an old scikit-learn, no PyTorch, no GPU, no memory: the parent says so
        print(json.dumps({"failure": f"{type(error).__name__}: {error}"[:200]}), flush=True)


def row(line: dict[str, Any], lines: list[dict[str, Any]]) -> list[str]:
    """Return the cells of one line."""
    cells = [line["name"], *map(str, line["size"]), line["device"], line["who"], line["what"]]
    if "failure" in line:
        return [*cells, "", f"failed: {line['failure']}", "", "", "", ""]
    goal = GOALS.get((line["name"], line["what"]), "") if line["who"] == "ours" else ""
    mode = next(each for each in lines if each["problem"] == line["problem"] and each["what"] == "mode")
    if line["what"] == DEFAULTS:
        goal = f"{DEFAULTS_GOAL * mode['ms']:.0f}"
    times = f"{line['ms'] / mode['ms']:.3g}" if line["who"] != "ours" else ""
    passes = str(line.get("passes", ""))
    return [*cells, f"{line['first_seconds']:.3g}", f"{line['ms']:.3g}", str(goal), times, passes, f"{line['gap']:.1e}"]
