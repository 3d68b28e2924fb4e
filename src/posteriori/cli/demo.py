"""The demo: three species of penguins by two quick measurements, and when it pays to take a third."""

import shlex
import tempfile
from importlib.resources import files
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, log_loss
from sklearn.pipeline import make_pipeline

from posteriori import (
    BayesianSoftmaxRegression,
    SoftmaxRegression,
    TableEncoder,
    Utility,
    UtilityClassifier,
    decide,
    save,
)
from posteriori import report as write_report
from posteriori.cli.destinations import require_destination
from posteriori.cli.output import counted, plain_table, result_console
from posteriori.decision.scores import realised_utility

TARGET = "species"
FEATURES = ["flipper_length_mm", "body_mass_g"]
"""What a scale and a ruler show at once; Adelie and Chinstrap penguins overlap in them."""
MEASURE = "measure the bill"
WORTH_OF_MEASURING = 0.8
"""The utility of measuring the bill, which tells the species and takes a fifth of the gain, where a right name is worth
1 and a wrong one 0."""


def run(report: Path | None) -> None:
    """Fit two models, print their scores and decisions, and write the report."""
    if report is not None:
        require_destination(report, option="--report", what="a report")
    train, test = load_penguins()
    model = SoftmaxRegression()
    start = perf_counter()
    model.fit(train, TARGET)
    seconds = perf_counter() - start
    posterior = BayesianSoftmaxRegression()
    start = perf_counter()
    posterior.fit(train, TARGET)
    posterior_seconds = perf_counter() - start

    console = result_console()
    utility = Utility.zero_one(posterior.classes_).with_reject(WORTH_OF_MEASURING, MEASURE)
    sections = {
        "Certificate": certificate_table(model, seconds),
        "Posterior, its prior chosen by evidence": posterior_table(posterior, posterior_seconds),
        "Scores on the held-out rows": score_table(model, posterior, train, test),
        "Coefficients, per standard deviation of the feature": coefficient_table(model, train),
        "Held-out penguins: the first of each species, and the least certain, with 95 % intervals": prediction_table(
            posterior, test
        ),
        f"Decisions, if a right name is worth 1, a wrong one 0 and to {MEASURE} {WORTH_OF_MEASURING:g}": (
            decision_table(posterior, test, utility)
        ),
    }
    console.print("\nSoftmax regression on the Palmer penguins", style="bold")
    console.print(
        f"{counted(len(train))} fitted, {len(test)} held out; {len(FEATURES)} features in raw units, "
        f"{len(model.classes_)} classes."
    )
    console.print(model.solution_.status.value)
    for title, table in sections.items():
        console.print(f"\n{title}", style="bold")
        console.print(table)
    console.print(f"\n{gain_sentence(posterior, test, utility)}", style="bold")
    _write_files(console, posterior, train, test, utility, report)


def _write_files(
    console: Console,
    posterior: BayesianSoftmaxRegression,
    train: pd.DataFrame,
    test: pd.DataFrame,
    utility: Utility,
    report: Path | None,
) -> None:
    """Write the report, and beside it a model to be served; or say why there are none.

    Without a path they go among temporary files, if there is a place.
    """
    path = report
    try:
        path = Path(tempfile.gettempdir()) / "posteriori-demo.html" if report is None else report
        write_report(
            posterior,
            test,
            TARGET,
            path,
            title="Penguins held out",
            utility=utility,
            facts={"Data": "Palmer penguins, every third one"},
        )
        model = path.with_suffix(".model")
        decider = UtilityClassifier(BayesianSoftmaxRegression(), utility)
        save(make_pipeline(TableEncoder(), decider).fit(train, TARGET), model)
    except OSError as error:
        if report is not None:
            raise
        where = "no folder for temporary files" if path is None else f"no way to write {path}"
        console.print(f"\nNo report: there is {where} ({error.strerror}). Give --report FILE.", soft_wrap=True)
        return
    console.print(f"\nReport, in which these utilities can be edited:\n{path}", soft_wrap=True)
    console.print("\nTo let programs ask this model, and people on a page (with the extra serve):")
    console.print(f"posteriori serve {shlex.quote(str(model))} --open", soft_wrap=True)


def load_penguins() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Penguins with all four measurements; every third one is held out."""
    with files("posteriori.tables").joinpath("bundled", "penguins.csv").open(encoding="utf-8") as file:
        penguins = pd.read_csv(file)[[TARGET, *FEATURES]].dropna()
    held_out = np.arange(len(penguins)) % 3 == 2
    return penguins[~held_out], penguins[held_out]


def certificate_table(model: SoftmaxRegression, seconds: float) -> Table:
    """The largest distance of the fit from the optimum, and the cost of the fit."""
    solution = model.solution_
    bound = "none" if solution.gap_bound is None else f"{solution.gap_bound:.1e}"
    table = plain_table("", "", "")
    table.show_header = False
    table.columns[2].justify = "left"
    table.add_row("objective J", f"{solution.objective:.6f}", "minus the log posterior, up to a constant")
    table.add_row("gap", f"{solution.gap:.1e}", "J above its minimum, estimated")
    table.add_row("gap bound", bound, "J above its minimum, proven")
    table.add_row("passes", f"{solution.n_passes}", "over the data")
    table.add_row("time", f"{1e3 * seconds:.1f} ms")
    return table


def posterior_table(model: BayesianSoftmaxRegression, seconds: float) -> Table:
    """The approximation that was chosen, and by which measure."""
    solution = model.solution_
    table = plain_table("", "", "")
    table.show_header = False
    table.columns[1].justify = table.columns[2].justify = "left"
    table.add_row("log evidence", f"{model.log_evidence_:.2f}", f"after {len(solution.evidence_path)} precisions")
    table.add_row("approximation", solution.approximation, solution.approximation_reason)
    scores = ", ".join(f"{name} {score:.3f}" for name, score in solution.scores.items())
    table.add_row("left-out log-loss", "", scores)
    table.add_row("time", f"{1e3 * seconds:.1f} ms")
    return table


def score_table(
    model: SoftmaxRegression, posterior: BayesianSoftmaxRegression, train: pd.DataFrame, test: pd.DataFrame
) -> Table:
    """Test scores beside those of a guess by class frequency."""
    truth = test[TARGET]
    baseline = DummyClassifier(strategy="prior").fit(train[FEATURES], train[TARGET])
    probs = {
        "point estimate": model.predict_proba(test),
        "posterior": posterior.predict_proba(test),
        "class frequencies": baseline.predict_proba(test[FEATURES]),
    }
    table = plain_table("", *probs)
    classes = model.classes_
    table.add_row("accuracy", *(f"{accuracy_score(truth, classes[p.argmax(axis=1)]):.3f}" for p in probs.values()))
    table.add_row("log-loss", *(f"{log_loss(truth, p, labels=classes):.3f}" for p in probs.values()))
    return table


def coefficient_table(model: SoftmaxRegression, train: pd.DataFrame) -> Table:
    """Change of each logit when a feature grows by one standard deviation."""
    names = list(model.feature_names_in_)
    effects = model.coef_ * train[names].std(ddof=0).to_numpy()
    table = plain_table("", *names)
    for species, row in zip(model.classes_, effects, strict=True):
        table.add_row(str(species), *(f"{effect:+.2f}" for effect in row))
    return table


def prediction_table(model: BayesianSoftmaxRegression, test: pd.DataFrame) -> Table:
    """Truth and probabilities of four held-out penguins, with intervals."""
    truth = test[TARGET].to_numpy()
    probs = model.predict_proba(test)
    lower, upper = model.predict_interval(test)
    first = [int(np.argmax(truth == species)) for species in model.classes_]
    least_certain = int(probs.max(axis=1).argmin())
    table = plain_table("truth", *(f"p({species})" for species in model.classes_))
    for n in [*first, least_certain]:
        ends = zip(probs[n], lower[n], upper[n], strict=True)
        table.add_row(str(truth[n]), *(f"{p:.3f} ({low:.2f}-{high:.2f})" for p, low, high in ends))
    return table


def decision_table(model: BayesianSoftmaxRegression, test: pd.DataFrame, utility: Utility) -> Table:
    """The number of penguins for which each action is the best, and the worth of these decisions beside fixed ways."""
    decisions = decide(model.predict_proba(test), utility, classes=model.classes_)
    table = plain_table("action", "penguins", "realised utility")
    for action in utility.actions:
        table.add_row(str(action), str(int((decisions.actions == action).sum())))
    for name, worth in worths(model, test, utility).items():
        table.add_row(name, str(len(test)), f"{worth:.4f}")
    return table


def worths(model: BayesianSoftmaxRegression, test: pd.DataFrame, utility: Utility) -> dict[str, float]:
    """The realised utility a penguin of the decisions, of always naming the most probable species, and of measuring."""
    decisions = decide(model.predict_proba(test), utility, classes=model.classes_)
    ways = {
        "decided": decisions.actions,
        "always a name": model.predict(test),
        f"always {MEASURE}": [MEASURE] * len(test),
    }
    return {name: realised_utility(test[TARGET], actions, utility) for name, actions in ways.items()}


def gain_sentence(model: BayesianSoftmaxRegression, test: pd.DataFrame, utility: Utility) -> str:
    """How much the decisions pay, in one sentence."""
    decided, named, measured = worths(model, test, utility).values()
    return (
        f"Deciding penguin by penguin is worth {decided:.3f} each: {decided - named:.3f} more than always naming the "
        f"most probable species, {decided - measured:.3f} more than measuring every bill."
    )
