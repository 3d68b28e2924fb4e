"""Pages that are made from other files, and links between them."""

from pathlib import Path

import pytest
from extensions import generated, links, outputs, results

DOCS = links.DOCS


@pytest.mark.parametrize(
    ("link", "becomes"),
    [
        ("(../GLOSSARY.md)", "(reference/glossary.md)"),
        ("(../benchmarks/results/price.md)", "(benchmarks/price.md)"),
        ("(../benchmarks/README.md#the-rules)", "(benchmarks/rules.md#the-rules)"),
        ("(theory.md#1-notation)", "(theory.md#1-notation)"),
        ("(https://example.org/GLOSSARY.md)", "(https://example.org/GLOSSARY.md)"),
        ("(#here)", "(#here)"),
    ],
)
def test_links_out_of_the_docs_lead_to_their_pages(link, becomes):
    assert links.relinked(f"[x]{link}", DOCS, DOCS / "bayesian.md") == f"[x]{becomes}"


def test_links_of_a_file_that_is_shown_elsewhere_move_with_it():
    text = "[a](docs/theory.md) ![b](docs/images/x.png)"
    page = DOCS / "reference" / "changelog.md"
    assert links.relinked(text, links.ROOT, page) == "[a](../theory.md) ![b](../images/x.png)"


def test_every_result_has_a_page_and_a_place_in_the_index():
    files = {path.stem for path in results.RESULTS.glob("*.md")}
    grouped = [name for group in results.GROUPS.values() for name in group]
    assert files <= set(grouped)
    assert len(grouped) == len(set(grouped))
    assert all(f"\n{name}\n" in results.index() for name in files)


@pytest.mark.parametrize("name", sorted(path.stem for path in results.RESULTS.glob("*.md")))
def test_a_page_of_results_says_how_to_repeat_them(name):
    page = results.page(name)
    command = page.partition("## Repeat it")[2].partition("```sh\n")[2].partition("\n")[0]
    assert command.startswith("python -m benchmarks")
    assert " cores" in page  # the machine


def test_words_of_the_glossary_become_terms():
    page = generated.glossary()
    assert "# Glossary" in page
    assert "\ncertificate\n    what proves how near the optimum a fit is" in page
    assert "- **" not in page
    words = (links.ROOT / "GLOSSARY.md").read_text(encoding="utf-8")
    assert page.count("\n    ") >= words.count("\n- **")


def test_pages_have_one_next():
    """Each page that people write ends with a line that leads to one other page."""
    own = [
        path
        for folder in ("start", "tutorials", "how-to", "explanation", "coming-from")
        for path in sorted((DOCS / folder).glob("*.md"))
    ]
    assert own
    wrong = []
    for path in own:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("**Next:**")]
        last = path.read_text(encoding="utf-8").rstrip().splitlines()[-1]
        if len(lines) != 1 or lines[0].count("](") != 1 or not last.startswith("**Next:**"):
            wrong.append(path.relative_to(Path(DOCS)).as_posix())
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("name   log_loss\nbayes    0.0856\nforest   0.2095", True),
        ("   cat  dog\n0    4    1", True),
        ("X contains NaN, first in column 'bill_length_mm', row 3: remove or fill in such rows.", False),
        ("One  gap between words\nis not\na table", False),
        ("", False),
    ],
)
def test_what_has_columns_is_a_table(text, table):
    assert outputs.is_table(text) is table
