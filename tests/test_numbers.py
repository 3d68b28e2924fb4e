"""Every number of README and of the site's pages that was measured is the one in benchmarks/results."""

from pathlib import Path

import pytest
from benchmarks.traces import (
    UntraceableError,
    claims_without_trace,
    rounds_to,
    tables,
    traced_numbers,
    value_of,
)

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CLAIMING = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "benchmarks" / "overview.md"]
"""Pages that sum up what was measured: none of their numbers may go without a trace."""


def name(path):
    return path.relative_to(ROOT).as_posix()


def pages_with_traces():
    return [page for page in PAGES if "_build" not in page.parts and traced_numbers(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", pages_with_traces(), ids=name)
def test_numbers_are_those_measured(page):
    wrong = [
        f"line {number.line}: {number.shown}, but {number.trace} is {value_of(number.trace):g}"
        for number in traced_numbers(page.read_text(encoding="utf-8"))
        if not number.agrees
    ]
    assert wrong == []


@pytest.mark.parametrize("page", CLAIMING, ids=name)
def test_no_claim_goes_without_a_trace(page):
    assert claims_without_trace(page.read_text(encoding="utf-8")) == []


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder of results in place of ours."""
    monkeypatch.setattr("benchmarks.traces.RESULTS", tmp_path)
    (tmp_path / "price.md").write_text(
        "# Price\n\n- Lower on 12 of 16\n  sets, and 1,250 rows.\n\n"
        "| set | fit | seconds | ours less peer |\n|---|---:|---|---|\n"
        "| wine | mode | 0.0361 | +0.0039 ± 0.0024 |\n| wine | posterior | 0.125 | -1.5e-3 |\n"
        "| **iris** | mode | 4 | |\n"
        "| alpha = D | all | 7 | |\n| alpha = D / 4 | all | 8 | |\n\nA set; all 3 of them.\n",
        encoding="utf-8",
    )


@pytest.mark.parametrize(
    ("trace", "value"),
    [
        ("price.md; wine; mode; seconds", 0.0361),
        ("price.md; iris; seconds", 4),
        ("price.md; wi; mode; seconds", 0.0361),
        ("price.md; mode; wine; seconds", 0.0361),
        ('price.md; "set; all {} of them"', 3),
        ("price.md; alpha = D; seconds", 7),
        ("price.md; wine; mode; ours less peer", 0.0039),
        ("price.md; wine; posterior; ours less peer", -0.0015),
        ('price.md; "Lower on {} of 16 sets"', 12),
        ('price.md; "and {} rows"', 1250),
        ("price.md; iris; seconds over price.md; wine; posterior; seconds", 32),
    ],
)
def test_a_trace_leads_to_a_number(results, trace, value):
    assert value_of(trace) == value


@pytest.mark.parametrize(
    ("trace", "complaint"),
    [
        ("speed.md; wine; seconds", "has no file 'speed.md'"),
        ("price.md; wine; seconds", "2 rows of tables with a column 'seconds'"),
        ("price.md; wine; mode; minutes", "0 rows of tables with a column 'minutes'"),
        ("price.md; iris; ours less peer", "no number in ''"),
        ('price.md; "Lower on {} of 17"', "has this sentence 0 times"),
        ("price.md; seconds", "words of a row and a column"),
    ],
)
def test_a_trace_that_leads_nowhere_says_why(results, trace, complaint):
    with pytest.raises(UntraceableError, match=complaint):
        value_of(trace)


@pytest.mark.parametrize(
    ("value", "shown", "agrees"),
    [
        (0.4045, "0.405", True),
        (0.4045, "0.404", True),  # a tie
        (0.4045, "0.406", False),
        (4.0, "4.0", True),
        (4.04, "4.0", True),
        (4.06, "4.0", False),
        (33.7, "34", True),
        (1_000_000, "1,000,000", True),
        (-0.0088, "−0.009", True),
        (6.4e-12, "6e-12", True),
        (6.6e-12, "6e-12", False),
    ],
)
def test_a_number_agrees_if_the_measured_one_rounds_to_it(value, shown, agrees):
    assert rounds_to(value, shown) is agrees


@pytest.mark.parametrize(
    "text",
    [
        "It is 3.7 times as fast.",
        "It is **3.7** times\nas fast.",
        "A fit takes 20 ms.",
        "Nothing else needs 1.5 GB.",
        "It has a mean log-loss of .405 there.",
        "It reaches an accuracy of 0.91",
        "Intervals cover 94.3 % of them.",
        "It is 3.7<!-- to be traced --> times as fast.",
    ],
)
def test_what_looks_measured_needs_a_trace(text):
    assert len(claims_without_trace(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "It is 3.7<!-- price.md; wine; mode; seconds --> times as fast.",
        "It is **3.7**<!-- price.md; wine; mode; seconds --> times as fast.",
        "Intervals at 95 %<!-- not measured --> are wide.",
        "Intervals at 95<!-- not measured --> % are wide.",
        "Intervals cover 94.3 %<!-- price.md; auto; 95 % --> of them",
        "You need Python 3.11 and 16 sets.",
        "`sleep 20 s` and [a page](2 s.md)\n\n    8 times in code\n\n```\nin 3 s\n```\n",
    ],
)
def test_what_has_a_trace_or_is_not_measured_is_let_alone(text):
    assert claims_without_trace(text) == []


def test_numbers_before_traces_are_found_in_their_lines():
    text = "One **3.7**<!-- a.md; b; c -->,\ntwo −2 %<!-- not measured -->, <!-- a remark --> 5<!-- another -->."
    found = [(number.line, number.shown, number.trace) for number in traced_numbers(text)]
    assert found == [(1, "3.7", "a.md; b; c"), (2, "−2", "not measured")]


def test_tables_of_a_page_are_apart():
    assert tables("| a |\n|---|\n| 1 |\n\ntext\n\n| `b` |\n|:--|\n| **2** |") == [[["a"], ["1"]], [["b"], ["2"]]]
