"""Random hard problems through the Python API: each ends in values with the right properties, or in a clear sentence.

`python -m benchmarks.wild fuzz --cases 5000 --seed 0`. Every case runs in a worker process with a limit of CPU time; a
worker that dies is replaced. A failure prints the line that repeats it: `fuzz --seed S --case N`.
"""

from __future__ import annotations

import multiprocessing
import re
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.wild import properties
from benchmarks.wild.hard_problems import Problem, problem

LIMIT = 30.0
"""Seconds of CPU that a case may take."""
LINES = {
    "right": "right",
    "refused": "refused with a sentence",
    "wrong": "wrong",
    "crashed": "crashed",
    "hang": "over 30 s",
}

NOTES = """\
Random hard problems through the Python API (`benchmarks/wild/hard_problems.py`): shapes from 1 row, to 3,000 columns
and 200 classes; columns repeated, collinear, constant, far from zero and in units from 1e-300 to 1e300; labels that are
separable, rare, soft, of classes without rows; weights from 1e-300 to 1e300; every container, solver, prior,
approximation and classifier; then every method that predicts. "refused" is an error that says in a sentence what is
wrong; "wrong" a property that does not hold (probabilities that are finite and sum to one, a certificate that claims no
more than is true); "crashed" any other error; "over 30 s" of CPU time; "leaked" warnings of a class that is not of
posteriori or scikit-learn."""
HEADER = ("seed", "cases", "right", "refused", "wrong", "crashed", "over 30 s", "leaked", "CPU minutes")


@dataclass
class Outcome:
    """How a case ended."""

    number: int
    end: str
    what: str = ""
    """The error or the property, with its place."""
    words: str = ""
    leaked: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """Sentences with which the fit or single predictions were refused."""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Return whether something is to be mended."""
        return self.end not in ("right", "refused") or bool(self.leaked)


def case(seed: int, number: int, limit: float = LIMIT, quick: bool = False) -> Outcome:
    """Run one case in this process."""
    began = time.process_time()
    given: Problem | None = None
    refusals: list[str] = []
    before = signal.signal(signal.SIGPROF, properties.stopped)
    signal.setitimer(signal.ITIMER_PROF, limit)
    leaked: list[str] = []
    try:
        with properties.leaks() as leaked:
            given = problem(seed, number, quick)
            end, what = tried(given, refusals, by_reference=not quick)
    except properties.OutOfTime:
        end, what = "hang", place(traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
    words = "" if given is None else given.name
    return Outcome(number, end, what, words, sorted(set(leaked)), refusals, time.process_time() - began)


def tried(given: Problem, refusals: list[str], *, by_reference: bool) -> tuple[str, str]:
    """Fit and predict by every method; return how that ended, and where."""
    step = "fit"
    try:
        try:
            model = properties.fitted(given)
        except Exception as error:
            if not properties.is_refusal(error):
                raise
            refusals.append(f"fit: {type(error).__name__}: {error}")
            return "refused", str(error)
        # the record too may be refused: after partial_fit, a Gaussian classifier is derived when it is first read
        calls = [("certificate", lambda: properties.check_certificate(given, model, by_reference))]
        calls += properties.of_model(model)
        calls += [each for X in given.new for each in properties.of_rows(model, X, properties.n_rows(X))]
        for step, call in calls:
            try:
                call()
            except Exception as error:
                if not properties.is_refusal(error):
                    raise
                refusals.append(f"{step}: {type(error).__name__}: {error}")
    except properties.Wrong as error:
        return "wrong", f"{step}: {error}"
    except Exception as error:
        return "crashed", f"{step}: {type(error).__name__}: {error} at {place(traceback.format_exc())}"
    return "right", ""


def place(trace: str) -> str:
    """Return the innermost line of the package in a traceback."""
    lines = re.findall(r"posteriori/([\w/]+\.py)\", line (\d+)", trace)
    return ":".join(lines[-1]) if lines else "?"


# Workers


def serve(connection: Connection, seed: int) -> None:
    """Run the cases that are sent, until there are no more."""
    while (number := connection.recv()) is not None:
        used = int(time.process_time())
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (used + int(3 * LIMIT), hard))  # where no exception comes through
        connection.send(case(seed, number))


class Worker:
    """A process that runs cases, one after another."""

    def __init__(self, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, seed), daemon=True)
        self.process.start()
        theirs.close()
        self.number = -1

    def begin(self, number: int) -> None:
        """Send a case."""
        self.number = number
        self.connection.send(number)

    def outcome(self) -> tuple[Outcome, bool]:
        """Return how its case ended, and whether the process still lives."""
        try:
            return self.connection.recv(), True
        except EOFError:
            self.process.join()
            killed = self.process.exitcode == -signal.SIGXCPU
            what = f"the process ended with exit code {self.process.exitcode}"
            return Outcome(self.number, "hang" if killed else "crashed", what), False


def outcomes(seed: int, numbers: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """Yield how each case ended, in the order in which they end."""
    left = iter(numbers)
    busy: dict[Connection, Worker] = {}

    def begin(worker: Worker | None) -> None:
        number = next(left, None)
        if number is None:
            if worker is not None:
                worker.connection.send(None)
            return
        worker = worker or Worker(seed)
        worker.begin(number)
        busy[worker.connection] = worker

    for _ in range(jobs):
        begin(None)
    while busy:
        for connection in wait([*busy]):
            worker = busy.pop(connection)  # type: ignore[call-overload]
            outcome, lives = worker.outcome()
            begin(worker if lives else None)
            yield outcome


# The run


def run(out: Path | None, cases: int, seed: int, jobs: int, only: int | None = None) -> bool:
    """Run the cases, print every failure as it comes and a summary, and store it; whether nothing is to be mended."""
    if only is not None:
        outcome = case(seed, only)
        print(f"{outcome.words}\n{outcome.end}: {outcome.what}")
        print("\n".join([*outcome.leaked, *outcome.refusals]))
        return not outcome.failed
    ends: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    failed, leaked, cpu = 0, 0, 0.0
    for outcome in outcomes(seed, range(cases), jobs):
        ends[outcome.end] += 1
        leaked += bool(outcome.leaked)
        cpu += outcome.seconds
        reasons.update(anonymous(each) for each in outcome.refusals)
        if outcome.failed:
            failed += 1
            again = f"python -m benchmarks.wild fuzz --seed {seed} --case {outcome.number}"
            leaks = "; ".join(outcome.leaked)
            print(f"{outcome.end}: {outcome.what} | {leaks} | {outcome.words} | {again}", flush=True)
    line = {"problem": f"seed {seed}", "seed": seed, "cases": cases, "leaked": leaked, "cpu_minutes": cpu / 60}
    line |= {end: ends[end] for end in LINES} | {"reasons": dict(reasons.most_common())}
    print(", ".join(f"{ends[end]} {word}" for end, word in LINES.items()) + f", {leaked} with leaked warnings")
    if out is not None:
        stored = records.store(out / "wild_fuzz.jsonl", [line])
        records.write(out / "wild_fuzz.md", page(stored))
    return not failed


def anonymous(sentence: str) -> str:
    """Return a sentence without its numbers and names, so that equal reasons are counted together."""
    sentence = re.sub(r"'[^']*'|\[[^\]]*\]|\([^)]*\)", "...", sentence)
    return re.sub(r"-?\d[\d.,e+-]*", "#", sentence)[:160]


def page(lines: list[dict[str, Any]]) -> str:
    """Return the table of all seeds, and the reasons of refusals."""
    rows = []
    for line in lines:
        ends = [f"{line[end]:,}" for end in LINES]
        rows.append([line["seed"], f"{line['cases']:,}", *ends, line["leaked"], f"{line['cpu_minutes']:.0f}"])
    text = records.markdown("Random hard problems", NOTES, HEADER, rows)
    reasons: Counter[str] = Counter()
    for line in lines:
        reasons.update(line["reasons"])
    listed = "".join(f"| {count:,} | {reason.replace('|', '/')} |\n" for reason, count in reasons.most_common())
    head = "Refusals, of fits and of single predictions, by reason:\n\n| times | reason |\n| --- | --- |\n"
    return f"{text}\n{head}{listed}"
