"""Pages of benchmarks/results on the site, each with how to repeat what it reports."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from extensions.links import DOCS, RESULTS, ROOT, relinked

FOLDER = DOCS / "benchmarks"

GROUPS: dict[str, tuple[str, ...]] = {
    "Softmax regression": ("softmax", "passes", "scaling"),
    "The posterior of softmax regression": (
        "price",
        "quality",
        "wide",
        "prior_strength",
        "coverage",
        "honesty",
        "laplace_torch",
        "blocks",
    ),
    "Gaussian classes": ("gaussian_quality", "gaussian_speed", "gaussian_parameters"),
    "Gaussian processes": (
        "gp_quality",
        "gp_time",
        "gp_coverage",
        "gp_kernels",
        "gp_folds",
        "gp_depth",
        "gp_digits",
        "gp_mnist",
        "gp_steps",
    ),
    "Left-out rows and stacks": ("left_out", "stack"),
    "Decisions and calibration": ("deciding", "conformal", "calibration", "calibration_maps"),
    "Rows elsewhere than in memory": ("same_answer", "gpu", "out_of_core", "against_spark"),
    "Commands and the server": ("commands", "fit_folder", "serving", "serving_faults"),
    "Tables of strangers": ("wild_tables", "wild_fuzz"),
    "Two versions": ("before_after",),
}
"""Results by what they are about; a test sees that none is missing."""

REPEATED_BY = {
    "wild_tables": "python -m benchmarks.wild tables",
    "wild_fuzz": "python -m benchmarks.wild fuzz --cases 5000 --seed 0",
    "before_after": "python -m benchmarks before-after --before FOLDER/src",
}
"""Commands that are not ``python -m benchmarks NAME``."""

_MACHINE = re.compile(r"^.+?, \d+ cores; .+; \d{4}-\d\d-\d\d\.", re.MULTILINE)


def page(name: str) -> str:
    """A page of results: their text, the machine in the foot of it, and the command."""
    source = RESULTS / f"{name}.md"
    command = REPEATED_BY.get(name, f"python -m benchmarks {name.replace('_', '-')}")
    if not source.is_file():
        title = name.replace("_", " ").capitalize()
        return f"# {title}\n\nThis has a benchmark, but no results yet.\n\n```sh\n{command}\n```\n"
    text = relinked(source.read_text(encoding="utf-8"), RESULTS, FOLDER / source.name)
    lines = [text.rstrip(), "", "## Repeat it", "", "```sh", command, "```", ""]
    lines += ["The rules, the options and the data are in [Rules](rules.md)."]
    if not _MACHINE.search(text):
        lines += ["The machine had two cores (AMD EPYC), where the page does not name another."]
    return "\n".join([*lines, ""])


def index() -> str:
    """The page of all results."""
    lines = [
        "# Benchmarks",
        "",
        "Everything that posteriori says of its speed, memory and quality was measured. Each page has the numbers, the "
        "machine, the versions, the date, and the command that repeats it. [In short](overview.md) says what it means.",
        "",
        "```{toctree}",
        ":hidden:",
        "",
        "overview",
        "rules",
        "```",
    ]
    for group, names in GROUPS.items():
        lines += ["", f"## {group}", "", "```{toctree}", "", *names, "```"]
    return "\n".join([*lines, "", "**Next:** [In short](overview.md)", ""])


def pages() -> dict[Path, str]:
    """All pages by their files; pictures are copied beside them."""
    for picture in RESULTS.glob("*.png"):
        shutil.copyfile(picture, FOLDER / picture.name)
    rules = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8").replace("# Benchmarks\n", "# Rules\n", 1)
    names = [name for group in GROUPS.values() for name in group]
    return {
        FOLDER / "index.md": index(),
        FOLDER / "rules.md": relinked(rules, ROOT / "benchmarks", FOLDER / "rules.md"),
        **{FOLDER / f"{name}.md": page(name) for name in names},
    }
