"""The line of a terminal that changes while a model is fitted, and what it says of Gaussian processes."""

import io
import sys

import pytest
import rich.console

from posteriori.cli.progress import Progress, Shape, showing_progress
from posteriori.gp.progress import Narration, begin_stage, progress_bar
from posteriori.gp.solution import Chunk
from posteriori.meta.comparison import FoldReport


class Line:
    """A status of rich that keeps what it is told to show."""

    def __init__(self):
        self.console = rich.console.Console(file=io.StringIO(), width=200)
        self.shown = ""

    def update(self, shown):
        self.shown = shown

    def text(self):
        """What is to be seen now; a narration is asked again."""
        return str(self.shown.__rich__() if hasattr(self.shown, "__rich__") else self.shown)


@pytest.fixture
def line():
    return Line()


def beginning(progress):
    """The narration of a fit of a Gaussian process that begins."""
    narration = Narration(100)
    progress.narrated(narration)
    return narration


def test_stages_of_a_gaussian_process_follow_what_it_is_for(line):
    progress = Progress(line)
    progress.fitting("gp", Shape(1438, 5, 3))
    assert line.text() == "fitting gp"
    narration = beginning(progress)
    begin_stage(narration, "learning the kernel from 800 rows", 8, 1.0)
    narration(Chunk(1, -3.0, 1.0, 0.0))
    assert line.text().startswith("fitting gp; learning the kernel from 800 rows: step 1 of 8, energy -3.00, 0 s")
    begin_stage(narration, "judging left-out rows")
    assert line.text() == "fitting gp; judging left-out rows: 0 s"
    narration.end()
    assert line.text() == "fitting gp; done"


def test_models_are_named_while_they_are_fitted(line):
    progress = Progress(line)
    progress.comparing(["bayes", "gp"], Shape(300, 5, 3))
    for name in ("bayes", "gp"):
        progress.beginning(name)
        beginning(progress)
        assert line.text() == f"fitting {name}; starting"
        progress.judged(FoldReport(name, 1, 1, 0.5, 300.0, 1.0))


def test_a_terminal_shows_fits_inside(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with showing_progress(quiet=False) as progress:
        progress.fitting("gp", Shape(40, 2, 3))
        with progress_bar(0, 100) as report:
            begin_stage(report, "solving for all 40 rows", 6, 1.0, at_most=False)
            assert str(progress.status.status.__rich__()) == "fitting gp; solving for all 40 rows: 0 s"
    assert "Fitting gp (40 rows, 2 features, 3 classes)" in terminal.getvalue()
    with progress_bar(0, 100) as report:
        assert report is None


@pytest.mark.parametrize("quiet", [True, False])
def test_without_a_terminal_fits_are_not_watched(quiet, capsys):
    with showing_progress(quiet) as progress, progress_bar(0, 100) as report:
        assert report is None
        assert progress.status is None


def test_text_from_data_is_shown_as_it_is(line):
    progress = Progress(line)
    progress.doing = "fitting [/b]\x1b"
    beginning(progress)
    assert line.text() == "fitting [/b]\\x1b; starting"
