"""A page for each public name: its docstring, its methods, and the examples of the gallery that use it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

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


PROTOCOLS = ("gp.kernels:Kernel", "solvers.solver:Solver", "softmax.priors:Prior", "softmax.priors:PriorOfColumns")
"""What the library asks of kernels, solvers and priors: documented once, for those who write new ones."""
FOR_THE_LIBRARY = {
    "assembled",
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
    seen = _asked_by_protocols(cls)
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
    return "\n".join(lines)


def index() -> str:
    """The table of all public names."""
    lines = [
        "# Python",
        "",
        "Every public name. `import posteriori as po` makes all of them attributes of `po`; what a name needs is imported "
        "when it is first used.",
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
