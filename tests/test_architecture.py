"""What the design promises of every module, checked in its syntax tree.

Each rule lists its offenders as `module: what`; there are none.
"""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "posteriori"


@cache
def modules() -> dict[str, list[ast.AST]]:
    """The syntax of all modules of the package, node by node; `rows.dask` is the name of posteriori.rows.dask."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        found[name or "posteriori"] = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    return found


def check(rule: str, offenders: list[str]) -> None:
    assert not offenders, f"{rule}: {sorted(offenders)}"


# Private attributes

NAMED_TUPLE = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Public, though their names begin with an underscore: those of named tuples, and os._exit."""
FOREIGN = {"_baseline_prediction", "_build_f", "_meta", "_predictors", "_real_set_num_threads"}
"""Private attributes of scikit-learn, Dask and OpenBLAS for which there is no public way."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in NAMED_TUPLE | FOREIGN


def own_private_names(nodes: list[ast.AST]) -> set[str]:
    """Private names that a module defines: functions, methods, variables, fields, and attributes of self."""
    names = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return {name for name in names if is_private(name)}


def test_private_attributes_are_read_in_their_own_module():
    """Of self and cls, or of a class that the same module defines; `getattr` with a private name is a read too."""
    offenders = []
    for module, nodes in modules().items():
        own = own_private_names(nodes)
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                of_super = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super"
                if is_private(node.attr) and not (of_self or of_super or node.attr in own):
                    offenders.append(f"{module}: {node.attr}")
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
                of_self = isinstance(node.args[0], ast.Name) and node.args[0].id in ("self", "cls")
                name = getattr(node.args[1], "value", None)
                if isinstance(name, str) and is_private(name) and not (of_self or name in own):
                    offenders.append(f"{module}: {name}")
    check("private attributes", offenders)


# Dispatch

STRUCTURES = {"full", "tied", "diagonal", "tied_diagonal", "spherical"}
"""Covariance structures of Gaussian classes."""


def strings(node: ast.AST) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_structures_of_gaussian_classes_are_told_apart_in_one_module():
    """No comparison with, and no table by, the name of a structure in gaussian/ or storage/ but in structures.py."""
    offenders = []
    for module, nodes in modules().items():
        if not module.startswith(("gaussian.", "storage.")) or module == "gaussian.structures":
            continue
        for node in nodes:
            compared = isinstance(node, (ast.Compare, ast.match_case)) and strings(node) & STRUCTURES
            keys = {key.value for key in getattr(node, "keys", []) if isinstance(key, ast.Constant)}
            if compared or (isinstance(node, ast.Dict) and len(keys) > 1 and keys <= STRUCTURES):
                offenders.append(module)
    check("structures", offenders)


CONTAINER_CHECKS = {"issparse", "isspmatrix", "is_sparse", "is_dask", "open_stream", "is_into_dataframe"}
CONTAINER_LIBRARIES = {"pa", "pd", "pl", "arrow", "pyarrow", "pandas", "polars", "sp", "sparse", "dask", "nw"}


def test_kinds_of_containers_are_told_apart_in_rows_and_tables():
    """Whether rows are sparse, streamed, on workers or in a table of some library is asked in rows/ and tables/."""
    offenders = []
    for module, nodes in modules().items():
        if module.startswith(("rows", "tables")):
            continue
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in CONTAINER_CHECKS:
                offenders.append(f"{module}: {called}")
            elif called == "isinstance" and len(node.args) == 2:
                kinds = [n for n in ast.walk(node.args[1]) if isinstance(n, ast.Attribute)]
                offenders += [
                    f"{module}: {kind.value.id}.{kind.attr}"
                    for kind in kinds
                    if isinstance(kind.value, ast.Name) and kind.value.id in CONTAINER_LIBRARIES
                ]
    check("containers", offenders)


# Modules

MOST_SINGLE_IMPORTERS = 32
REGISTERED = {"ENGINE", "ROUTES"}
"""Names by which a module hands itself to a registry."""


def imported(name: str, nodes: list[ast.AST]) -> set[str]:
    """Modules of the package that a module imports, anywhere in it, or names as the home of something."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("posteriori"):
            base = node.module.removeprefix("posteriori").lstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                found.add(inner if inner in modules() else base or "posteriori")
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("posteriori.") for alias in node.names if "posteriori." in alias.name}
    return found - {name}


def entry_points() -> set[str]:
    """Modules that are reached by name or by a registry: homes of public names, commands, kernels for JAX, classes in
    files, engines, and protocols of the server, of which each is a module by design.
    """
    named = set()
    for nodes in modules().values():
        for text in (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)):
            if match := re.fullmatch(r"posteriori\.([a-z_.]+)(:\w+)?", text):
                named.add(match[1])
    commands = {name for name in modules() if name.startswith("cli.")}
    registered = {
        name
        for name, nodes in modules().items()
        if any(isinstance(n, ast.Name) and n.id in REGISTERED and isinstance(n.ctx, ast.Store) for n in nodes)
    }
    return named | commands | registered | {"kernels", "__main__"}


def test_few_modules_have_a_single_importer():
    """A module that only one other imports should be part of it, unless it is an idea of its own.

    Packages, modules that their own package passes on, and modules that are reached by name instead of an import, are
    not counted.
    """
    importers = defaultdict(set)
    for name, nodes in modules().items():
        for other in imported(name, nodes):
            importers[other].add(name)
    entries = entry_points()
    packages = {name for name in modules() if any(other.startswith(f"{name}.") for other in modules())}
    single = [
        name
        for name in modules()
        if len(importers[name] - {name.rpartition(".")[0]}) == 1 and name not in packages | entries
    ]
    assert len(single) <= MOST_SINGLE_IMPORTERS, sorted(single)
    unused = [n for n in modules() if not importers[n] and n not in packages | entries | {"posteriori"}]
    assert not unused, f"no module imports {unused}"


def test_class_names_are_unique():
    homes = defaultdict(list)
    for module, nodes in modules().items():
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module)
    check("class names", [f"{name}: {', '.join(where)}" for name, where in homes.items() if len(where) > 1])


# Docstrings

FRAGMENT = re.compile(r"(Of|From|The same|With|Without|Those|As|By|Whose|Its|Their)\b")


def test_docstrings_stand_alone():
    """The first sentence of a docstring is not the end of one that begins with the function's name.

    The rule looks at its first word: "Of the posterior, and why." cannot be read without the name.
    """
    offenders = []
    for module, nodes in modules().items():
        for node in nodes:
            documented = isinstance(node, (ast.FunctionDef, ast.ClassDef))
            if documented and FRAGMENT.match(ast.get_docstring(node) or ""):
                offenders.append(f"{module}: {node.name}")
    check("docstrings", offenders)
