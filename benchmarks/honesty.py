"""How far approximate posteriors are from the exact one: against NUTS (NumPyro) under the same prior.

In standard coordinates: weights N(0, 1/a), logits of the mean row N(0, s^2), with the a and s that our evidence chose.
Compared at held-out rows: predictive probabilities by total variation, 1/2 sum_k |p_k - q_k|, and ends of intervals.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks import problems, records
from benchmarks.adapters import library_version
from benchmarks.turns import quiet

SETS = ("wine", "glass", "2k-20-5")
METHODS = ("default", "laplace", "variational", "importance", "plugin")
HELD_OUT, LEVEL = 0.3, 0.95

NOTES = """\
Same model and prior for all: standardised columns, weights N(0, 1/a), logits of the mean row N(0, s^2), with the a
chosen by our evidence, and s = 2.5 unless it chose more. 30 % of the rows are held out (stratified, seed 0); at these,
the total variation (TV) of predictive probabilities from those of NUTS, and the distance of the ends of 95 % intervals
of class probabilities from its quantiles; "wider" is the mean width less that of NUTS. "NUTS itself" estimates the
error of NUTS's own averages from the two halves of its chains. "loss" is the log-loss of the held-out rows in nats.
k-hat and the effective sample size (ESS) are those of importance weights."""

HEADER = (
    "set", "train", "held out", "D", "K", "a", "s", "posterior", "mean TV", "max TV", "mean end", "max end", "wider",
    "loss", "remarks",
)  # fmt: skip


class Chains(NamedTuple):
    """Draws of the probabilities at held-out rows, (S, n, K), chain after chain, and how far to trust them."""

    P: np.ndarray
    r_hat: float
    least_ess: float
    divergences: int
    seconds: float


def run(names: Iterable[str] | None, data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Run the sets one after another; the results are on disk after each."""
    if find_spec("numpyro") is None:
        print("honesty: skipped, numpyro is not installed")
        return
    for name in ("wine",) if quick else SETS:
        if names is not None and name not in names:
            continue
        loaded = problems.load(name, data)
        if loaded is None:
            print(f"{name}: skipped, there is no {name}.npz (give its folder with --data)")
            continue
        lines = study(name, *loaded, draws=200 if quick else 4000, chains=2 if quick else 4)
        stored = records.store(out / "honesty.jsonl", lines)
        records.write(out / "honesty.md", page(stored))
        plot(stored, out / "honesty.png")


def study(name: str, X: np.ndarray, y: np.ndarray, draws: int, chains: int) -> list[dict[str, Any]]:
    """Return one line per posterior."""
    import posteriori as po

    K = len(np.unique(y))
    train, test = train_test_split(np.arange(len(y)), test_size=HELD_OUT, random_state=0, stratify=y)
    mean, sd = X[train].mean(axis=0), X[train].std(axis=0)
    Z = (X - mean) / np.where(sd > 0, sd, 1.0)
    tail = 0.5 * (1.0 - LEVEL)
    with quiet():
        default = po.BayesianSoftmaxRegression().fit(Z[train], y[train])
        a, s = float(default.prior_.precision), float(default.prior_.intercept_precision) ** -0.5
        prior = po.GaussianPrior(precision=a, intercept_precision=s**-2)
        chain = nuts(Z[train], y[train], (K, a, s), Z[test], draws, chains)
    exact = chain.P.mean(axis=0)
    ends = np.quantile(chain.P, (tail, 1.0 - tail), axis=0)
    common = {
        "problem": name,
        "shape": (len(train), X.shape[1], K),
        "held_out": len(test),
        "precision": a,
        "intercept_sd": s,
        "nuts": {"draws": len(chain.P), "seconds": chain.seconds, "r_hat": chain.r_hat, "least_ess": chain.least_ess}
        | {"divergences": chain.divergences, "numpyro": library_version("numpyro"), "jax": library_version("jax")},
    }
    half = len(chain.P) // 2
    halves = [chain.P[:half], chain.P[half:]]
    # Two halves differ by twice the error of the whole.
    own = total_variation(*(part.mean(axis=0) for part in halves)) / 2
    own_ends = np.abs(np.subtract(*(np.quantile(part, (tail, 1.0 - tail), axis=0) for part in halves))) / 2
    lines = [
        common
        | {"posterior": "NUTS itself", "tv": rounded(own), "mean_end": own_ends.mean(), "max_end": own_ends.max()}
        | {"wider": None, "loss": loss(exact, y[test])}
    ]
    for method in METHODS:
        start = perf_counter()
        with quiet():
            approximation = {"default": "auto", "plugin": "laplace"}.get(method, method)
            model = po.BayesianSoftmaxRegression(prior, approximation=approximation).fit(Z[train], y[train])
            seconds = perf_counter() - start
            if method == "plugin":
                model.set_params(predictive="plugin")
            P = model.predict_proba(Z[test])
            interval = None if method == "plugin" else np.stack(model.predict_interval(Z[test], LEVEL))
        solution = model.solution_
        off = None if interval is None else np.abs(interval - ends)
        lines.append(
            common
            | {
                "posterior": method,
                "used": solution.approximation,
                "seconds": seconds,
                "tv": rounded(total_variation(P, exact)),
                "mean_end": None if off is None else off.mean(),
                "max_end": None if off is None else off.max(),
                "wider": None
                if interval is None
                else float(np.diff(interval, axis=0).mean() - np.diff(ends, axis=0).mean()),
                "loss": loss(P, y[test]),
                "k_hat": solution.k_hat,
                "ess": solution.effective_sample_size,
            }
        )
    lines = [{key: float(v) if isinstance(v, np.floating) else v for key, v in line.items()} for line in lines]
    for line in lines:
        print(
            f"{name}: {line['posterior']:12} mean TV {np.mean(line['tv']):.4f}  max {max(line['tv']):.4f}", flush=True
        )
    print(f"{name}: NUTS {chain.seconds:.0f} s, r-hat {chain.r_hat:.3f}, least ESS {chain.least_ess:.0f}", flush=True)
    return lines


def nuts(
    Z: np.ndarray,
    y: np.ndarray,
    given: tuple[int, float, float],
    Z_new: np.ndarray,
    draws: int,
    chains: int,
    seed: int = 0,
) -> Chains:
    """Draw from the exact posterior, given (K, a, s); return the probabilities of new rows under each draw."""
    import jax
    import numpyro
    from numpyro import distributions as dist
    from numpyro.diagnostics import effective_sample_size, gelman_rubin
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    K, a, s = given

    def model(Z: Any, y: Any) -> None:
        W = numpyro.sample("W", dist.Normal(0.0, a**-0.5).expand([K, Z.shape[1]]).to_event(2))
        b = numpyro.sample("b", dist.Normal(0.0, s).expand([K]).to_event(1))
        numpyro.sample("y", dist.Categorical(logits=Z @ W.T + b).to_event(1), obs=y)

    start = perf_counter()
    sampler = MCMC(
        NUTS(model),
        num_warmup=1000,
        num_samples=draws,
        num_chains=chains,
        chain_method="sequential",
        progress_bar=False,
    )
    sampler.run(jax.random.PRNGKey(seed), Z, y)
    samples = sampler.get_samples(group_by_chain=True)
    seconds = perf_counter() - start
    W, b = np.asarray(samples["W"]), np.asarray(samples["b"])
    F = np.einsum("cskd,nd->csnk", W, Z_new, optimize=True) + b[:, :, None, :]
    F -= F.max(axis=-1, keepdims=True)
    P = np.exp(F, out=F)
    P /= P.sum(axis=-1, keepdims=True)
    # Probabilities of a class that is out of the question hardly move: their diagnostics are about rounding.
    likely = P.mean(axis=(0, 1)) > 1e-3
    return Chains(
        P.reshape(-1, *P.shape[2:]),
        float(np.max(gelman_rubin(P)[likely])),
        float(np.min(effective_sample_size(P)[likely])),
        int(np.sum(sampler.get_extra_fields()["diverging"])),
        seconds,
    )


def total_variation(P: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """Return 1/2 sum_k |P_nk - Q_nk|, (n,)."""
    return np.asarray(0.5 * np.abs(P - Q).sum(axis=1))


def loss(P: np.ndarray, y: np.ndarray) -> float:
    """Return the mean of -log P_ny."""
    return float(-np.log(P[np.arange(len(y)), y]).mean())


def rounded(values: np.ndarray) -> list[float]:
    """Return the values to six digits, for the record."""
    return [round(float(value), 6) for value in values]


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    rows = []
    for line in lines:
        N, D, K = line["shape"]
        ends = [line["mean_end"], line["max_end"]]
        rows.append(
            [
                line["problem"], N, line["held_out"], D, K, f"{line['precision']:.3g}", f"{line['intercept_sd']:.3g}",
                line["posterior"],
                f"{np.mean(line['tv']):.4f}", f"{max(line['tv']):.4f}",
                *("-" if end is None else f"{end:.4f}" for end in ends),
                "-" if line["wider"] is None else f"{line['wider']:+.4f}",
                f"{line['loss']:.4f}", remarks(line),
            ]
        )  # fmt: skip
    return records.markdown("Honesty of posteriors", NOTES + "\n\n![total variation](honesty.png)", HEADER, rows)


def remarks(line: dict[str, Any]) -> str:
    """Return what the numbers of this line rest on."""
    if line["posterior"] == "NUTS itself":
        nuts = line["nuts"]
        return (
            f"{nuts['draws']} draws in {nuts['seconds']:.0f} s, r-hat {nuts['r_hat']:.3f}, least ESS "
            f"{nuts['least_ess']:.0f}, {nuts['divergences']} divergences"
        )
    if line["posterior"] == "default":
        return f"{line['used']}"
    return "" if line["k_hat"] is None else f"k-hat {line['k_hat']:.2f}, ESS {line['ess']:.0f}"


def plot(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw the share of held-out rows within a total variation of NUTS, one panel per set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(line["problem"] for line in lines))
    figure, panels = plt.subplots(1, len(names), figsize=(4.2 * len(names), 4.0), layout="constrained", squeeze=False)
    colours = {"laplace": "#d1662b", "variational": "#5b8c3a", "importance": "#7a4f9a", "plugin": "#0b6e99"}
    for axes, name in zip(panels[0], names, strict=True):
        for line in lines:
            if line["problem"] != name or line["posterior"] == "default":
                continue
            itself = line["posterior"] == "NUTS itself"
            tv = np.sort(line["tv"])
            style = {"color": "0.6", "linestyle": "--"} if itself else {"color": colours[line["posterior"]]}
            axes.plot(tv, np.arange(1, len(tv) + 1) / len(tv), linewidth=1.8, label=line["posterior"], **style)
        axes.set(xscale="log", xlabel="total variation from NUTS", xlim=(1e-5, 1.0), ylim=(0.0, 1.0))
        axes.set_title(name, loc="left", fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9", linewidth=0.8)
    panels[0][0].set_ylabel("share of held-out rows")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
