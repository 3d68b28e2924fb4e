"""Milliseconds of a training step of Gaussian processes, one layer and two, against GPyTorch, on the device at hand.

Needs numpy, scipy, scikit-learn, JAX and optax; where GPyTorch is missing, only ours is timed. From a checkout in which
nothing is installed: ``PYTHONPATH=src python -m benchmarks gp-steps``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks import problems, records
from benchmarks.adapters import library_version
from benchmarks.turns import quiet, timed


class Size(NamedTuple):
    """Rows, features, classes, inducing inputs of each layer, rows of a step."""

    N: int
    D: int
    K: int
    M: int
    B: int


SIZES = {
    "60k-784-10-b200": Size(60_000, 784, 10, 100, 200),
    "60k-784-10-b2048": Size(60_000, 784, 10, 100, 2048),
    "100k-50-10-b2048": Size(100_000, 50, 10, 500, 2048),
}
QUICK = {"500-5-3-b50": Size(500, 5, 3, 10, 50)}

WIDTH, SAMPLES = 30, 10
"""Nodes of the hidden layer, and samples of every row, of two layers."""
STEPS, REPEATS, QUICK_STEPS, QUICK_REPEATS = 64, 7, 4, 2
RATE, JITTER, SITE_STEP, LEAST_AVERAGE = 0.01, 1e-6, 0.5, 0.02
LAYERS = {1: "one layer", 2: "two layers"}

NOTES = f"""\
Normal features, labels of a softmax model; N rows in batches of B, all on the device (those beyond the last whole batch
are left out). A chunk of {STEPS} steps is timed until its results are there; "first" is the first chunk of all, with
compilation, "ms a step" the median of up to {REPEATS} further ones (fewer where these take longer than --budget
seconds, at least one) divided by {STEPS}. Two layers: {WIDTH} hidden nodes (D, if that is less) and {SAMPLES} samples.
All have M inducing inputs from k-means, which they move, and Adam. Ours: `run_plan` and `run_stack_plan` as
`GPClassifier()` and `DeepGPClassifier()` use them, with the default kernel and the argmax likelihood, in double
precision, one compiled chunk at a time. GPyTorch, one layer: `VariationalStrategy` in
`IndependentMultitaskVariationalStrategy`, an RBF kernel with a lengthscale for every feature, once with a kernel and
inducing inputs for every class ("own"), once with one of each for all ("shared"); two layers: `DeepGP`, own kernels and
inducing inputs for every node; `SoftmaxLikelihood` without mixing weights, by {SAMPLES} samples; in single precision,
its default, and in double. Each library has its own number of threads. "times" is ms a step in units of ours. Every
time is in `gp_steps.jsonl`."""

HEADER = ("problem", "N", "D", "K", "M", "B", "device", "layers", "who", "precision", "first (s)", "ms a step", "times")

Chunk = Callable[[], None]


@dataclass(frozen=True)
class Posteriori:
    """``posteriori``: one layer by `run_plan`, two by `run_stack_plan`."""

    layers: int
    library: str = "posteriori"
    kind: str = "shared"
    precision: str = "float64"

    def device(self) -> str:
        import jax

        return jax.devices()[0].device_kind

    def prepare(self, size: Size, X: np.ndarray, y: np.ndarray, Z: np.ndarray, steps: int) -> Chunk:
        """Return a function that takes some steps and waits for them."""
        import jax

        from posteriori.gp.session import jax_session

        with jax_session(None):
            advance, state = (self._one_layer if self.layers == 1 else self._two_layers)(size, X, y, Z, steps)
        done = 0

        def chunk() -> None:
            nonlocal state, done
            with jax_session(None):
                state, energies = jax.block_until_ready(advance(state, done + np.arange(steps)))
            if not np.isfinite(energies).all():
                raise FloatingPointError(f"energies are not finite after {done} steps")
            done += steps

        return chunk

    def _one_layer(self, size: Size, X: np.ndarray, y: np.ndarray, Z: np.ndarray, steps: int) -> Any:
        import jax
        import jax.numpy as jnp

        from posteriori.gp.inputs import typical_distance
        from posteriori.gp.likelihoods import ArgmaxLikelihood
        from posteriori.gp.settings import default_kernel
        from posteriori.gp.sparse import SparseGP
        from posteriori.gp.training import RowSitePlan, initial_row_sites, train_row_sites

        batches = in_batches(X, y, size.B)
        n_batches = len(batches.y)
        model = SparseGP(default_kernel(), ArgmaxLikelihood(size.K), size.K)
        start = jax.tree.map(jnp.asarray, model.start(Z, typical_distance(X, seed=0)))

        def advance(state: Any, i: np.ndarray) -> Any:
            plan = RowSitePlan(
                batch=jnp.asarray(i % n_batches),
                rate=jnp.where(i < n_batches, 0.0, RATE),
                site_step=jnp.full(steps, SITE_STEP),
                sum_step=jnp.maximum(1.0 / (i + 1.0), max(1.0 / n_batches, LEAST_AVERAGE)),
            )
            state, trace = train_row_sites(model, start, state, batches, plan, jnp.float64(JITTER), 1.0)
            return state, trace.log_partition + n_batches * trace.rows + trace.log_prior

        return advance, initial_row_sites(start, batches, size.K, len(Z))

    def _two_layers(self, size: Size, X: np.ndarray, y: np.ndarray, Z: np.ndarray, steps: int) -> Any:
        import jax
        import jax.numpy as jnp

        from posteriori.gp.fit import start_stack
        from posteriori.gp.inputs import LabelledRows
        from posteriori.gp.kernels import RBF
        from posteriori.gp.likelihoods import ArgmaxLikelihood
        from posteriori.gp.settings import default_kernel
        from posteriori.gp.sparse import SparseGP
        from posteriori.gp.stack import HiddenLayer, StackedGP
        from posteriori.gp.training import TiedSitePlan, initial_tied_sites, train_tied_sites

        batches = in_batches(X, y, size.B)
        n_batches = len(batches.y)
        hidden = HiddenLayer(RBF(), min(WIDTH, size.D))
        model = StackedGP((hidden,), SparseGP(default_kernel(), ArgmaxLikelihood(size.K), size.K, inducing_spread=10.0))
        # its inducing inputs are Z: the same k-means from the same seed
        free = start_stack(model, LabelledRows(X, y, np.ones(len(y))), size.M, seed=0, averaged=True)
        start = jax.tree.map(jnp.asarray, free)

        def advance(state: Any, i: np.ndarray) -> Any:
            plan = TiedSitePlan(
                batch=jnp.asarray(i % n_batches),
                rate=jnp.full(steps, RATE),
                sum_step=jnp.maximum(1.0 / (i + 2.0), max(1.0 / n_batches, LEAST_AVERAGE)),
                seed=jnp.asarray(i),
            )
            return train_tied_sites(
                model, start, state, batches, plan, jnp.float64(JITTER), power=1.0, n_samples=SAMPLES, averaged=True
            )

        return advance, initial_tied_sites(start, size.K)


@dataclass(frozen=True)
class GPyTorch:
    """GPyTorch, on the GPU if PyTorch has one; classes have kernels of their "own", or a "shared" one."""

    layers: int
    kind: str
    precision: str
    library: str = "gpytorch"

    def device(self) -> str:
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"

    def prepare(self, size: Size, X: np.ndarray, y: np.ndarray, Z: np.ndarray, steps: int) -> Chunk:
        """Return a function that takes some steps and waits for them."""
        from benchmarks.gp_torch import Training

        width = None if self.layers == 1 else WIDTH
        shared = self.kind == "shared"
        training = Training(X, y, Z, width=width, shared=shared, rate=RATE, n_samples=SAMPLES, dtype=self.precision)
        firsts = range(0, len(X) - size.B + 1, size.B)
        done = 0

        def chunk() -> None:
            nonlocal done
            for i in range(done, done + steps):
                first = firsts[i % len(firsts)]
                training.step(slice(first, first + size.B))
            training.wait()
            done += steps

        return chunk


Adapter = Posteriori | GPyTorch


def contenders() -> list[Adapter]:
    """Return all that are timed, those with as many layers side by side."""
    found: list[Adapter] = []
    for layers in LAYERS:
        found.append(Posteriori(layers))
        if find_spec("gpytorch") is not None:
            kinds = ("own", "shared") if layers == 1 else ("own",)
            found += [GPyTorch(layers, kind, precision) for kind in kinds for precision in ("float32", "float64")]
    return found


def run(names: Iterable[str] | None, out: Path, budget: float, *, quick: bool = False) -> None:
    """Run the problems one after another; the results are on disk after each."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs memory of the GPU too
    device = Posteriori(1).device()
    if find_spec("gpytorch") is None:
        print("gp-steps: GPyTorch is not installed, only ours is timed")
    for name, size in (QUICK if quick else SIZES).items():
        if names is not None and name not in names:
            continue
        lines = study(size, *((QUICK_STEPS, QUICK_REPEATS) if quick else (STEPS, REPEATS)), budget)
        # lines are replaced by problem, and another device is another problem
        common = {"problem": f"{name}, {device}", "name": name, "size": size._asdict()}
        stored = records.store(out / "gp_steps.jsonl", [common | line for line in lines])
        records.write(out / "gp_steps.md", page(stored))


def study(size: Size, steps: int, repeats: int, budget: float) -> list[dict[str, Any]]:
    """Return the times of every contender on one problem."""
    from posteriori.gp.inputs import inducing_inputs

    X, y = problems.synthetic(*size[:3])
    Z, _ = inducing_inputs(X, np.ones(len(X)), size.M, seed=0)
    lines = []
    for adapter in contenders():
        line = asdict(adapter) | {"device": adapter.device(), "versions": versions(adapter), "steps": steps}
        try:
            with quiet():
                line |= measured(adapter.prepare(size, X, y, Z, steps), repeats, budget)
        except Exception as error:  # out of memory, say; the others go on
            line |= {"failure": f"{type(error).__name__}: {error}"[:200]}
        lines.append(line)
        print(size, line, flush=True)
    return lines


def measured(chunk: Chunk, repeats: int, budget: float) -> dict[str, Any]:
    """Return the seconds of the first call, and those of some more."""
    first, _ = timed(chunk)
    began, times = perf_counter(), []
    while not times or (len(times) < repeats and perf_counter() - began < budget):
        times.append(timed(chunk)[0])
    return {"first_seconds": first, "seconds": median(times), "all_seconds": times}


def versions(adapter: Adapter) -> dict[str, str]:
    """Return those of the libraries at work."""
    import posteriori

    if isinstance(adapter, Posteriori):
        return {"posteriori": posteriori.__version__, "jax": library_version("jax")}
    return {name: library_version(name) for name in ("gpytorch", "torch")}


def in_batches(X: np.ndarray, y: np.ndarray, B: int) -> Any:
    """Return the rows in batches of B, on the device."""
    import jax.numpy as jnp

    from posteriori.gp.batches import Batches

    n_batches = len(X) // B
    rows = n_batches * B
    return Batches(
        jnp.asarray(X[:rows].reshape(n_batches, B, -1)),
        jnp.asarray(y[:rows].reshape(n_batches, B)),
        jnp.ones((n_batches, B)),
    )


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    names = dict.fromkeys(line["problem"] for line in lines)
    rows = [row for name in names for row in table([line for line in lines if line["problem"] == name])]
    seen = dict.fromkeys(f"{name} {version}" for line in lines for name, version in line["versions"].items())
    return records.markdown("Training steps of Gaussian processes", f"{NOTES} {', '.join(seen)}.", HEADER, rows)


def table(lines: list[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of one problem: of one layer, then of two, ours first."""
    rows = []
    for layers in LAYERS:
        these = [line for line in lines if line["layers"] == layers]
        ours = next((line for line in these if line["library"] == "posteriori" and "failure" not in line), None)
        for line in these:
            cells = [line["name"], *map(str, line["size"].values()), line["device"], str(layers), label(line)]
            cells.append(line["precision"])
            if "failure" in line:
                rows.append([*cells, "", f"failed: {line['failure'].split(':')[0]}", ""])
                continue
            times = "" if ours is None or line is ours else f"{line['seconds'] / ours['seconds']:.2f}"
            step = 1e3 * line["seconds"] / line["steps"]
            rows.append([*cells, f"{line['first_seconds']:.3g}", f"{step:.3g}", times])
    return rows


def label(line: dict[str, Any]) -> str:
    """Return who took the steps."""
    return "ours" if line["library"] == "posteriori" else f"GPyTorch, {line['kind']}"
