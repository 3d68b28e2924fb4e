"""A page for each public name: its docstring, its methods, and the examples of the gallery that use it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from extensions import theory

API = Path(__file__).parents[1] / "reference" / "api"

GROUPS: dict[str, tuple[str, ...]] = {
    "Classifiers": (
        "SoftmaxRegression",
        "BayesianSoftmaxRegression",
        "GaussianClassifier",
        "GPClassifier",
        "DeepGPClassifier",
        "ForestClassifier",
        "BoostingClassifier",
        "StackedClassifier",
    ),
    "Classifiers around a classifier": ("CalibratedClassifier", "ConformalClassifier", "UtilityClassifier"),
    "Decisions": ("Utility", "decide", "Decisions"),
    "Scores and reports": (
        "evaluate",
        "Evaluation",
        "report",
        "Report",
        "compare",
        "Comparison",
        "LeftOut",
        "posterior_check",
        "PosteriorCheck",
        "walkthrough",
    ),
    "Pictures": (
        "ReliabilityDisplay",
        "ConfusionUtilityDisplay",
        "DecisionRegionDisplay",
        "UtilityCurveDisplay",
        "ComparisonDisplay",
        "PosteriorCheckDisplay",
    ),
    "Tables and files": ("TableEncoder", "predict_to", "save", "load", "to_onnx", "onnx_inputs"),
    "Server": ("serve.app", "serve.Limits"),
    "Priors": ("GaussianPrior", "NormalInverseWishartPrior", "RidgePrior"),
    "Kernels of Gaussian processes": (
        "kernels.RBF",
        "kernels.Matern",
        "kernels.RationalQuadratic",
        "kernels.Linear",
        "kernels.Polynomial",
        "kernels.Constant",
        "kernels.ARD",
        "kernels.Sum",
        "kernels.Product",
        "kernels.Kernel",
        "kernels.ScaledKernel",
    ),
    "Solvers, and how a fit ended": (
        "Newton",
        "LBFGS",
        "GradientDescent",
        "StochasticGradient",
        "Solution",
        "Status",
    ),
    "Warnings and errors": (
        "ConvergenceWarning",
        "SeparationWarning",
        "ApproximationWarning",
        "SingularWarning",
        "ColumnWarning",
        "UnseenLevelWarning",
        "ClassOrderWarning",
        "WeightWarning",
        "StorageWarning",
        "StorageError",
    ),
}
"""Public names by what a reader wants of them; a test compares them with ``__all__``."""


def names() -> list[str]:
    """All public names, as they follow ``posteriori.``."""
    return [name for group in GROUPS.values() for name in group]


def public(name: str) -> Any:
    """The object that a user reaches as ``posteriori.name``."""
    value = import_module("posteriori")
    for part in name.split("."):
        value = getattr(value, part)
    return value


ARGUMENTS = {
    "X": "Rows, in any of the forms that `fit` takes.",
    "y": "The true classes of the rows, or the name of a column of X.",
    "sample_weight": "Weights of the rows, or the name of a column of X.",
    "level": "The probability of the interval.",
    "n_draws": "The number of draws.",
    "random_state": "An int or a RandomState; None draws the same ones each time.",
    "ax": "The axes to draw on; new ones if left out.",
    "name": "What the legend calls it.",
}
"""Arguments that mean the same everywhere: docstrings of methods leave them out, and pages explain them."""

PROTOCOLS = ("gp.kernels:Kernel", "solvers.solver:Solver", "softmax.priors:Prior", "softmax.priors:PriorOfColumns")
"""What the library asks of kernels, solvers and priors: documented once, for those who write new ones."""
FOR_THE_LIBRARY = {
    "assembled",
    "ended",
    "in_coordinates",
    "keeps_rows",
    "origin",
    "scaled",
    "spreads",
    "standardised",
}
"""Members by which modules of the library work together; users have no need of them."""


def own_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of a class that posteriori defines, in the order in which they are defined.

    What a class only answers because a protocol asks for it is documented by the protocol.
    """
    seen = _asked_by_protocols(cls) | attributes(cls)
    for base in cls.__mro__:
        if base.__module__.startswith("posteriori"):
            for name, value in vars(base).items():
                if name.startswith("_") or name in seen:
                    continue
                seen.add(name)
                if inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod, property)):
                    yield name, value
                elif hasattr(value, "fn"):  # there only if the fit can answer, by `available_if`
                    yield name, value.fn


def _asked_by_protocols(cls: type) -> set[str]:
    asked = set(FOR_THE_LIBRARY)
    for path in PROTOCOLS:
        module, _, name = path.partition(":")
        protocol = getattr(import_module(f"posteriori.{module}"), name)
        members = {member for member in dir(protocol) if not member.startswith("_")}
        if protocol is not cls and (protocol in cls.__mro__ or members <= {*dir(cls)}):
            asked |= members
    return asked


def summary(value: Any) -> str:
    """The first sentence of a docstring."""
    lines = inspect.getdoc(value) or ""
    return " ".join(lines.partition("\n\n")[0].split())


def documented(docstring: list[str]) -> set[str]:
    """Arguments that a docstring has in its section of parameters."""
    found, inside = set(), False
    for line, after in pairwise([*docstring, ""]):
        if re.fullmatch(r"-{3,}", after.strip()):
            inside = line.strip() in ("Parameters", "Other Parameters")
        elif inside and line and not line.startswith(" ") and not line.startswith("-"):
            found |= {name.strip() for name in line.partition(" : ")[0].split(",")}
    return found


def with_arguments(docstring: list[str], parameters: list[str]) -> list[str]:
    """A method's docstring with a section for the arguments that it leaves out and that `ARGUMENTS` explains."""
    known = documented(docstring)
    left_out = [name for name in parameters if name in ARGUMENTS and name not in known]
    if not left_out or known:
        return docstring
    section = ["", "Parameters", "----------"]
    for name in left_out:
        section += [name, f"    {ARGUMENTS[name]}"]
    return [*docstring, *section, ""]


def attributes(cls: type) -> set[str]:
    """What the docstring of a class lists as attributes."""
    text = inspect.getdoc(cls) or ""
    section = re.search(r"^Attributes\n-+\n(.*?)(?=^\w[^\n]*\n-{3,}\n|\Z)", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r"^(\w[\w, ]*?)(?: :.*)?$", section[1], re.MULTILINE) if section else []
    return {name.strip() for line in names for name in line.split(",")}


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Complete a docstring before numpydoc reads it: standard arguments, and links to sections of the theory."""
    if what == "method":
        try:
            parameters = list(inspect.signature(obj).parameters)
        except (TypeError, ValueError):
            parameters = []
        lines[:] = with_arguments(lines, parameters)
    lines[:] = [_SECTION.sub(_link_to_theory, line) for line in lines]


_SECTION = re.compile(r"docs/theory\.md, section (\d+\.\d+)")


def _link_to_theory(match: re.Match[str]) -> str:
    title = next((section.title for section in theory.sections() if section.number == match[1]), "")
    return f"`Theory, section {match[1]} <../../theory.html#{place(title)}>`__"


def place(title: str) -> str:
    """The place of a heading in a page of HTML, as docutils names it: letters and digits, from the first letter on."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def setup(app: Any) -> dict[str, bool]:
    """Complete docstrings before numpydoc does its part."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def page(name: str) -> str:
    """The page of a public name, in reStructuredText."""
    value = public(name)
    module = "posteriori" + "".join(f".{part}" for part in name.split(".")[:-1])
    short = name.rpartition(".")[2]
    lines = [name, "=" * len(name), "", f".. currentmodule:: {module}", ""]
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        lines += [f".. {kind}:: {short}", ""]
        members = list(own_members(value))
        if members:
            lines += [".. rubric:: Methods and properties", ""]
        for member, defined in members:
            directive = "autoproperty" if isinstance(defined, property) else "automethod"
            lines += [f".. {directive}:: {short}.{member}", ""]
    else:
        lines += [f".. autofunction:: {short}", ""]
    lines += [f".. minigallery:: posteriori.{name}", "   :add-heading: In the gallery", "   :heading-level: -", ""]
    return "\n".join(lines)


def index() -> str:
    """The table of all public names."""
    lines = [
        "# Python",
        "",
        "Every public name. `import posteriori as po` makes all of them attributes of `po`; what a name needs is "
        "imported when it is first used.",
        "",
    ]
    for group, members in GROUPS.items():
        lines += [f"## {group}", "", "| name | what it is |", "|---|---|"]
        lines += [f"| [`{name}`]({name}.rst) | {_cell(summary(public(name)))} |" for name in members]
        lines += ["", "```{toctree}", ":hidden:", "", *members, "```", ""]
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """All pages by their files."""
    return {API / "index.md": index()} | {API / f"{name}.rst": page(name) for name in names()}


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("``", "`")
