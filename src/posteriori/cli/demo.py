"""The demo: three species of penguin told apart by four measurements."""

from importlib.resources import files
from time import perf_counter

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, log_loss

from posteriori import SoftmaxRegression

TARGET = "species"
FEATURES = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]


def run() -> None:
    """Fit, then print the certificate, the test scores, the coefficients and four predictions."""
    train, test = load_penguins()
    model = SoftmaxRegression()
    start = perf_counter()
    model.fit(train, TARGET)
    seconds = perf_counter() - start
    probs = model.predict_proba(test)

    console = Console(highlight=False)
    sections = {
        "Certificate": certificate_table(model, seconds),
        "Scores on the held-out rows": score_table(model, train, test, probs),
        "Coefficients, per standard deviation of the feature": coefficient_table(model, train),
        "Held-out penguins: the first of each species, and the least certain": prediction_table(model, test, probs),
    }
    console.print("\n[bold]Softmax regression on the Palmer penguins[/bold]")
    console.print(
        f"{len(train)} rows fitted, {len(test)} held out; {len(FEATURES)} features in raw units, "
        f"{len(model.classes_)} classes."
    )
    console.print(model.solution_.status.value, markup=False)
    for title, table in sections.items():
        console.print(f"\n[bold]{title}[/bold]")
        console.print(table)


def load_penguins() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Penguins with all four measurements; every third one is held out."""
    with files("posteriori.data").joinpath("tables", "penguins.csv").open(encoding="utf-8") as file:
        penguins = pd.read_csv(file)[[TARGET, *FEATURES]].dropna()
    held_out = np.arange(len(penguins)) % 3 == 2
    return penguins[~held_out], penguins[held_out]


def certificate_table(model: SoftmaxRegression, seconds: float) -> Table:
    """How far the fit can be from the optimum, and what it cost."""
    solution = model.solution_
    bound = "none" if solution.gap_bound is None else f"{solution.gap_bound:.1e}"
    table = _table("", "", "")
    table.show_header = False
    table.columns[2].justify = "left"
    table.add_row("objective J", f"{solution.objective:.6f}", "minus the log posterior, up to a constant")
    table.add_row("gap", f"{solution.gap:.1e}", "J above its minimum, estimated")
    table.add_row("gap bound", bound, "J above its minimum, proven")
    table.add_row("passes", f"{solution.n_passes}", "over the data")
    table.add_row("time", f"{1e3 * seconds:.1f} ms")
    return table


def score_table(model: SoftmaxRegression, train: pd.DataFrame, test: pd.DataFrame, probs: NDArray[np.float64]) -> Table:
    """Test scores beside those of a guess by class frequency."""
    truth = test[TARGET]
    baseline = DummyClassifier(strategy="prior").fit(train[FEATURES], train[TARGET])
    table = _table("", "model", "class frequencies")
    table.add_row(
        "accuracy",
        f"{accuracy_score(truth, model.classes_[probs.argmax(axis=1)]):.3f}",
        f"{baseline.score(test[FEATURES], truth):.3f}",
    )
    table.add_row(
        "log-loss",
        f"{log_loss(truth, probs, labels=model.classes_):.3f}",
        f"{log_loss(truth, baseline.predict_proba(test[FEATURES]), labels=baseline.classes_):.3f}",
    )
    return table


def coefficient_table(model: SoftmaxRegression, train: pd.DataFrame) -> Table:
    """Change of each logit when a feature grows by one standard deviation."""
    names = list(model.feature_names_in_)
    effects = model.coef_ * train[names].std(ddof=0).to_numpy()
    table = _table("", *names)
    for species, row in zip(model.classes_, effects, strict=True):
        table.add_row(str(species), *(f"{effect:+.2f}" for effect in row))
    return table


def prediction_table(model: SoftmaxRegression, test: pd.DataFrame, probs: NDArray[np.float64]) -> Table:
    """Truth and probabilities of four held-out penguins."""
    truth = test[TARGET].to_numpy()
    first = [int(np.argmax(truth == species)) for species in model.classes_]
    least_certain = int(probs.max(axis=1).argmin())
    table = _table("truth", *(f"p({species})" for species in model.classes_))
    for n in [*first, least_certain]:
        table.add_row(str(truth[n]), *(f"{p:.3f}" for p in probs[n]))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 2), header_style="dim")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
