"""The documentation shows what the code does today."""

from pathlib import Path

import posteriori as po

PAGE = Path(__file__).parents[2] / "docs" / "walkthrough.md"


def test_the_page_holds_the_current_output():
    # To renew it: keep the page up to its rule (---) and append `posteriori walkthrough`.
    assert PAGE.read_text(encoding="utf-8").partition("\n---\n\n")[2] == po.walkthrough().to_markdown()
