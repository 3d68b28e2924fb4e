"""What is said of a fit while it runs: stages in words, steps, seconds, and how many may be left."""

import io
import threading

import numpy as np
import pytest
import rich.console

from posteriori.gp.learning import ascend
from posteriori.gp.progress import Narration, Stage, begin_stage, progress_bar, shown_by, sweep_cost
from posteriori.gp.solution import Chunk


class Clock:
    """A clock that a test turns."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def said():
    return []


@pytest.fixture
def narration(clock, said):
    return Narration(50, done=said.append, clock=clock)


def take(narration, clock, n_steps, seconds, energy=-1.0, first=1):
    """Steps of a stage, each of so many seconds."""
    for n in range(first, first + n_steps):
        clock.now += seconds
        narration(Chunk(n, energy, 1.0, 0.0))


# Stages


def test_a_plain_function_is_told_of_steps_alone():
    told = []
    begin_stage(told.append, "learning the kernel from 10 rows", 8)
    begin_stage(None, "judging left-out rows")
    assert told == []


def test_a_report_with_stages_is_told_of_them():
    told = []

    class Watching:
        def stage(self, stage):
            told.append(stage)

        def __call__(self, chunk):
            pass

    begin_stage(Watching(), "solving for all 9 rows", 6, 2.0, 3.0, at_most=False)
    assert told == [Stage("solving for all 9 rows", 6, 2.0, 3.0, at_most=False)]


def test_a_line_says_what_is_done_how_far_it_is_and_how_long_it_may_take(narration, clock):
    assert narration.line() == "starting"
    begin_stage(narration, "learning the kernel from 800 rows", 8, cost=2.0, later=10.0)
    assert narration.line() == "learning the kernel from 800 rows: 0 s"
    take(narration, clock, 1, 9.0)  # the first step takes longer
    take(narration, clock, 2, 3.0, first=2, energy=-123.456)
    # 1.5 seconds for a unit: five steps of 2, and 10 afterwards
    assert narration.left() == pytest.approx(1.5 * (5 * 2.0 + 10.0))
    expected = "learning the kernel from 800 rows: step 3 of 8, energy -123.46, 15 s, left about 30 s"
    assert narration.line() == expected == str(narration.__rich__())
    clock.now += 7.0
    assert narration.left() == pytest.approx(23.0)
    clock.now += 700.0
    assert narration.left() == 0.0


def test_the_seconds_of_a_stage_tell_those_of_the_next(narration, clock):
    begin_stage(narration, "learning the kernel from 400 rows", 40, cost=1.0, later=80.0)
    take(narration, clock, 1, 2.0)
    assert narration.left() == pytest.approx(2.0 * (39 + 80))
    take(narration, clock, 4, 0.5, first=2)
    assert narration.left() == pytest.approx(0.5 * (35 + 80))
    begin_stage(narration, "learning the kernel from 800 rows", 8, cost=8.0, later=16.0)
    assert narration.left() == pytest.approx(0.5 * (64 + 16))
    take(narration, clock, 1, 20.0)  # a single step, which takes longer than others, changes nothing yet
    assert narration.left() == pytest.approx(0.5 * (56 + 16))
    begin_stage(narration, "judging left-out rows")
    assert narration.left() is None
    begin_stage(narration, "solving for all 1,438 rows", 6, cost=4.0, at_most=False)
    assert narration.left() == pytest.approx(0.5 * 24)


def test_steps_that_are_usual_may_be_exceeded(narration, clock, said):
    begin_stage(narration, "solving for all 1,438 rows", 3, cost=4.0, at_most=False)
    take(narration, clock, 2, 1.0)
    assert narration.line() == "solving for all 1,438 rows: step 2, energy -1.00, 2 s, left about 1 s"
    take(narration, clock, 2, 1.0, first=3)
    assert narration.line() == "solving for all 1,438 rows: step 4, energy -1.00, 4 s"


def test_ascents_of_one_stage_are_counted_together(narration, clock):
    begin_stage(narration, "comparing 2 kernels on 470 rows", 80, cost=1.0)
    take(narration, clock, 12, 0.1)
    take(narration, clock, 3, 0.1)  # counted from one again
    assert narration.line().startswith("comparing 2 kernels on 470 rows: step 15 of 80")


def test_the_last_line_of_a_stage_stays(narration, clock, said):
    begin_stage(narration, "comparing 2 kernels on 470 rows", 80, cost=1.0)
    take(narration, clock, 1, 0.25, energy=-7.0)
    begin_stage(narration, "learning the kernel from 800 rows", 8, cost=5.0)
    take(narration, clock, 8, 2.0, energy=-6.5)
    begin_stage(narration, "judging left-out rows")
    clock.now += 1.75
    narration.end()
    narration.end()
    assert said == [
        "comparing 2 kernels on 470 rows: 1 step, energy -7.00, 0.2 s",
        "learning the kernel from 800 rows: 8 steps, energy -6.50, 16 s",
        "judging left-out rows: 1.8 s",
    ]
    assert narration.line() == "done"


def test_fits_that_name_no_stage_learn(narration, clock, said):
    """Chunks of several compiled steps; the first is compiled, and tells nothing of the others."""
    for n, seconds in ((10, 30.0), (20, 1.0), (30, 1.0)):
        clock.now += seconds
        narration(Chunk(n, -5.0, 0.1, 0.0))
        if n == 10:
            assert narration.line() == "learning: step 10 of 50, energy -5.00, 30 s"
    assert narration.line() == "learning: step 30 of 50, energy -5.00, 32 s, left at most 2 s"
    narration.end()
    assert said == ["learning: 30 steps, energy -5.00, 32 s"]


def test_times_have_one_digit(narration, clock):
    begin_stage(narration, "learning", 10**6, cost=1.0)
    take(narration, clock, 1, 0.0)
    for seconds, words in ((0.0, "1 s"), (12.0, "20 s"), (55.0, "1 min"), (61.0, "2 min"), (700.0, "20 min")):
        begin_stage(narration, "learning", 11, cost=1.0)
        take(narration, clock, 2, seconds / 9)
        assert narration.line().endswith(f"left about {words}")
    begin_stage(narration, "learning", 11, cost=1.0)
    take(narration, clock, 2, 3000.0)
    assert narration.line().endswith("left about 8 h")


def test_sweeps_cost_more_than_their_cube_where_rows_are_few():
    assert sweep_cost(500, 2) == 0.5 * 500**2 * 1500
    assert sweep_cost(500, 3) == 6 * sweep_cost(500, 2)
    assert 2**2 < sweep_cost(200, 3) / sweep_cost(100, 3) < sweep_cost(20_000, 3) / sweep_cost(10_000, 3) < 2**3


def test_a_display_reads_while_a_fit_goes_on(narration, clock):
    """Lines are asked for in another thread, at any moment."""
    failures, stopped = [], threading.Event()

    def read():
        while not stopped.is_set():
            try:
                assert narration.line()
            except Exception as error:
                failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(300):
        begin_stage(narration, f"stage {i}", 5, cost=1.0)
        take(narration, clock, 4, 0.1)
    stopped.set()
    reader.join()
    assert failures == []


# What is shown


@pytest.fixture
def console(monkeypatch):
    """What a console that a fit makes is made with, and where it writes: a terminal of 80 columns."""
    made = io.StringIO()
    original = rich.console.Console

    def fake(**options):
        assert options.pop("stderr")
        return original(file=made, force_terminal=True, width=80, color_system=None, **options)

    monkeypatch.setattr(rich.console, "Console", fake)
    return made


def steps(report):
    for n in range(1, 4):
        report(Chunk(n, -9.5 + n, 0.5, 0.1 * n))


def test_a_quiet_fit_has_no_report(capsys):
    with progress_bar(0, 10) as report:
        assert report is None
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_stages_in_words(console):
    with progress_bar(1, 100) as report:
        begin_stage(report, "comparing 2 kernels on [470] rows", 80, cost=1.0, later=1e9)
        steps(report)
        begin_stage(report, "judging left-out rows")
    lines = console.getvalue().splitlines()
    stayed = [line for line in lines if " 3 steps, energy -6.50, 0.0 s" in line]
    assert len(stayed) == 1
    assert "comparing 2 kernels on [470] rows: 3 steps" in stayed[0]
    assert any("judging left-out rows: 0.0 s" in line for line in lines)


def test_the_line_of_a_terminal_goes_on_between_steps(console):
    """Its seconds do, as it is asked for again whenever it is drawn."""
    drawn = threading.Event()
    with progress_bar(1, 100) as report:
        begin_stage(report, "judging left-out rows")
        report.line = lambda **_: drawn.set() or "drawn again"
        assert drawn.wait(10)
    assert "drawn again" in console.getvalue()


def test_where_there_is_no_terminal_each_stage_is_a_line(capsys):
    """The last one too, if the fit is interrupted in it."""

    def fit():
        with progress_bar(1, 100) as report:
            begin_stage(report, "learning the kernel from 800 rows, " + "which is said in so many words, " * 3, 8)
            steps(report)
            begin_stage(report, "solving for all 1,438 rows", 6, 1.0, at_most=False)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit()
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.rpartition(":")[2].split(", ")[:2] for line in err.splitlines()] == [
        [" 3 steps", "energy -6.50"],
        [" 0.0 s"],
    ]


def test_every_step_on_request(capsys):
    with progress_bar(2, 100) as report:
        begin_stage(report, "learning the kernel from 800 rows", 8)
        steps(report)
    assert capsys.readouterr().err.splitlines() == [
        "learning the kernel from 800 rows",
        "step 1  energy -8.500  rate 0.5  0.1 s",
        "step 2  energy -7.500  rate 0.5  0.2 s",
        "step 3  energy -6.500  rate 0.5  0.3 s",
    ]


def test_another_may_show_fits(capsys):
    shown = []
    with shown_by(shown.append):
        with progress_bar(0, 100) as report:
            assert [report] == shown
            begin_stage(report, "solving for all 5 rows")
            assert report.line() == "solving for all 5 rows: 0 s"
        assert report.line() == "done"
        with progress_bar(0, 100) as another:
            assert another.line() == "starting"
        with progress_bar(2, 100) as own:
            assert own not in shown
    assert shown == [report, another]
    with progress_bar(0, 100) as report:
        assert report is None
    assert capsys.readouterr() == ("", "")


def test_a_plain_function_hears_of_the_steps_of_an_ascent():
    class Parabola:
        """Minus half the square of the distance from (1, 2), as if it were an evidence."""

        rows = type("Rows", (), {"y": [0]})

        def __call__(self, vector):
            away = vector - [1.0, 2.0]
            return -0.5 * away @ away, -away

        def accept(self):
            pass

    told = []
    learned = ascend(Parabola(), np.zeros(2), [], tol=1e-6, max_iter=20, report=told.append)
    assert told == learned.trace
    assert len(told) == learned.n_steps > 1
