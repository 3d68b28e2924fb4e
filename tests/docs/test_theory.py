"""Every section of the theory is computed somewhere, and tested."""

import pytest
from extensions import theory

NUMBERS = [section.number for section in theory.sections()]


def test_sections_are_those_of_the_page():
    assert NUMBERS[:3] == ["1", "2.1", "2.2"]
    assert len(NUMBERS) == len(set(NUMBERS)) > 30


def test_nothing_cites_a_section_that_is_not_there():
    assert {number for cited in theory.citations() for number in cited.sections} <= set(NUMBERS)


@pytest.mark.parametrize("number", [number for number in NUMBERS if number not in theory.EXPLAINED])
def test_a_section_is_computed_and_tested(number):
    cited = [each for each in theory.citations() if number in each.sections]
    assert cited, f"no docstring cites section {number}: name it where it is computed, or list it in EXPLAINED"
    assert all(each.path.is_file() for each in cited)
    for each in cited:
        tests = theory.tests_of(each)
        assert tests, f"no test imports {each.name or each.module}: name a test that reaches it in REACHED"
        assert all(path.is_file() for path in tests)


def test_citations_are_read():
    assert theory.sections_of("X (docs/theory.md, section 4.2).") == ("4.2",)
    assert theory.sections_of("See docs/theory.md, sections 5.1 and 5.2.") == ("5.1", "5.2")
    assert theory.sections_of("See docs/theory.md,\n    section 7.") == ("7",)
    assert theory.sections_of("Section 7 of another book.") == ()


def test_anchors_are_those_of_the_page():
    anchors = {section.number: section.anchor for section in theory.sections()}
    assert anchors["2.3"] == "23-newtons-method-and-its-preconditioners"


def test_the_page_shows_code_and_tests_below_each_heading():
    text = theory.in_each_section("## 3. Posterior\n\n### 3.2 Laplace's approximation\n\nAt the mode\n")
    assert "## 3. Posterior\n\n###" in text
    assert "### 3.2 Laplace's approximation\n\n{.computed}\nCode: " in text
    assert "[`laplace`](../src/posteriori/softmax/laplace.py)" in text
    assert "[test_laplace.py](../tests/softmax/test_laplace.py)" in text
