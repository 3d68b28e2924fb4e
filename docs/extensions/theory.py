"""Which functions compute each section of the theory, and which tests check them: read from docstrings and imports.

A docstring cites a section as "docs/theory.md, section 3.2" or "sections 5.1 and 5.2". The tests of a function are
those that import it, or else its module; the few modules that tests reach through an estimator alone are named below.
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCES, TESTS, THEORY = ROOT / "src" / "posteriori", ROOT / "tests", ROOT / "docs" / "theory.md"
PAGE = ROOT / "docs" / "reference" / "theory-map.md"

EXPLAINED = {
    "1": "Letters; targets are normalised by `read_target`.",
    "8": "Equalities: each is a test of the family that it speaks of.",
}
"""Sections that are explanation, and need no function."""

REACHED = {
    "decision.uncertainty": ("softmax/test_bayesian_predictions.py",),
    "softmax.blocks": ("softmax/test_blocks.py",),
    "softmax.left_out": ("left_out/test_loo.py",),
    "gp.stack": ("gp/test_fitting.py",),
}
"""Modules that tests reach through an estimator alone, and these tests."""

_CITATION = re.compile(r"theory\.md,\s+sections?\s+((?:\d+(?:\.\d+)?(?:,\s*|\s+and\s+)?)+)")
_HEADING = re.compile(r"^(#{2,3}) (\d+(?:\.\d+)?)\.? (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """A numbered heading of theory.md."""

    number: str
    title: str

    @property
    def anchor(self) -> str:
        """The place in the page, as MyST names it."""
        text = re.sub(r"[^\w\- ]", "", f"{self.number} {self.title}".lower())
        return text.replace(" ", "-")


@dataclass(frozen=True)
class Cited:
    """A function, class or module that says which section it computes."""

    module: str
    name: str
    """Empty for a module."""
    line: int
    sections: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The file."""
        path = SOURCES.joinpath(*self.module.split("."))
        return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


@cache
def sections() -> tuple[Section, ...]:
    """All numbered headings, but those that only gather others."""
    found = [Section(number, title) for _, number, title in _HEADING.findall(THEORY.read_text(encoding="utf-8"))]
    parents = {section.number.partition(".")[0] for section in found if "." in section.number}
    return tuple(section for section in found if section.number not in parents)


def sections_of(docstring: str) -> tuple[str, ...]:
    """The sections that a docstring cites."""
    return tuple(number for match in _CITATION.finditer(docstring) for number in re.findall(r"\d+(?:\.\d+)?", match[1]))


@cache
def citations() -> tuple[Cited, ...]:
    """Everything in the package that cites a section."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        module = ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                numbers = sections_of(ast.get_docstring(node) or "")
                if numbers:
                    found.append(Cited(module, getattr(node, "name", ""), getattr(node, "lineno", 1), numbers))
    return tuple(found)


@cache
def imports() -> dict[Path, set[tuple[str, str]]]:
    """What each test imports from the package: (module, name), with an empty name for the module itself."""
    found = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("posteriori"):
                module = (node.module or "").removeprefix("posteriori").lstrip(".")
                names |= {(module, alias.name) for alias in node.names}
                names |= {(f"{module}.{alias.name}".lstrip("."), "") for alias in node.names}
                names.add((module, ""))
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "po":
                names.add(("", node.attr))
        found[path] = names
    return found


@cache
def homes() -> dict[str, str]:
    """The module of each public name."""
    import posteriori

    return {name: getattr(posteriori, name).__module__.removeprefix("posteriori.") for name in _public(posteriori)}


def _public(posteriori: Any) -> list[str]:
    return [name for name in posteriori.__all__ if hasattr(getattr(posteriori, name), "__module__")]


def tests_of(cited: Cited) -> list[Path]:
    """Tests that import a function itself, its package's name for it, or, where none does, its module."""
    package = cited.module.rpartition(".")[0]
    by_name = {(module, cited.name) for module in (cited.module, package, "")} if cited.name else set()
    by_module = {(cited.module, "")}
    if cited.name and homes().get(cited.name, cited.module) != cited.module:
        by_name.discard(("", cited.name))
    for wanted in (by_name, by_module):
        found = [path for path, names in imports().items() if names & wanted]
        if found:
            return found
    return [TESTS / path for path in REACHED.get(cited.module, ())]


def in_each_section(text: str) -> str:
    """The text of theory.md with a line below each heading: the code that computes it, and its tests."""
    known = {section.number: section for section in sections()}

    def with_line(heading: re.Match[str]) -> str:
        section = known.get(heading[2])
        cited = [each for each in citations() if section and section.number in each.sections]
        if not cited:
            return heading[0]
        code = ", ".join(f"[`{each.name or each.module}`]({_relative(each.path)})" for each in cited)
        tests = ", ".join(f"[{path.name}]({_relative(path)})" for path in _tests(cited))
        return f"{heading[0]}\n\n{{.computed}}\nCode: {code}. Tests: {tests}."

    return _HEADING.sub(with_line, text)


def page() -> str:
    """The table."""
    lines = [
        "# Where the theory is computed",
        "",
        "Which functions compute each section of [Theory](../theory.md), and which tests check them. The table is made "
        "from the code: functions name their section, and tests import what they check.",
        "",
        "| section | computed by | checked by |",
        "|---|---|---|",
    ]
    for section in sections():
        cited = [each for each in citations() if section.number in each.sections]
        code = "<br>".join(_code(each) for each in cited) or EXPLAINED.get(section.number, "")
        checked = "<br>".join(_file(path, path.relative_to(ROOT).as_posix()) for path in _tests(cited))
        title = f"[{section.number} {section.title}](../theory.md#{section.anchor})"
        lines.append(f"| {title} | {code} | {checked} |")
    return "\n".join([*lines, "", "**Next:** [Architecture](../architecture.md)", ""])


def pages() -> dict[Path, str]:
    """The page by its file."""
    return {PAGE: page()}


def setup(app: Any) -> dict[str, bool]:
    """Show code and tests below each heading of the page."""

    def read(app: Any, docname: str, source: list[str]) -> None:
        if docname == "theory":
            source[0] = in_each_section(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _tests(cited: list[Cited]) -> list[Path]:
    return sorted({path for each in cited for path in tests_of(each)})


def _relative(path: Path) -> str:
    return os.path.relpath(path, THEORY.parent)


def _code(cited: Cited) -> str:
    path = cited.path.relative_to(SOURCES).as_posix()
    where = _file(cited.path, f"{path}:{cited.line}" if cited.name else path)
    return f"`{cited.name}` in {where}" if cited.name else where


def _file(path: Path, text: str) -> str:
    return f"[{text}]({os.path.relpath(path, PAGE.parent)})"
