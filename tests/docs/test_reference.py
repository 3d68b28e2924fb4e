"""The reference is complete: every public name has a page, a docstring that numpydoc accepts, and an example."""

import inspect
import re
import tomllib
from enum import Enum
from pathlib import Path

import pytest
from extensions import api, commands

import posteriori as po
from posteriori import kernels, serve

ROOT = Path(__file__).parents[2]
MODULES = {"__version__", "kernels", "serve"}


def members():
    """Public names with a docstring of ours, and their methods and properties, each once: path and object."""
    seen = set()
    for name in api.names():
        value = api.public(name)
        if not value.__module__.startswith("posteriori"):
            continue
        found = [(f"posteriori.{name}", value)]
        if inspect.isclass(value):
            found += [(f"posteriori.{name}.{member}", defined) for member, defined in api.own_members(value)]
        for path, each in found:
            home = plain(each)
            key = (getattr(home, "__module__", ""), getattr(home, "__qualname__", path))
            if key not in seen:
                seen.add(key)
                yield path, each


def plain(member):
    """The function behind a property, a class method or a decorator."""
    return inspect.unwrap(member.fget if isinstance(member, property) else getattr(member, "__func__", member))


def test_every_public_name_has_a_page():
    public = {*po.__all__} - MODULES
    public |= {f"kernels.{name}" for name in kernels.__all__} | {f"serve.{name}" for name in serve.__all__}
    assert sorted(api.names()) == sorted(public)
    assert all(page.strip() for page in api.pages().values())


def test_every_member_has_a_docstring():
    assert [path for path, member in members() if not inspect.getdoc(plain(member))] == []


def test_every_public_class_and_function_has_an_example():
    without = [
        name
        for name in api.names()
        if api.public(name).__module__.startswith("posteriori") and ">>>" not in (api.public(name).__doc__ or "")
    ]
    assert without == []


def test_every_public_class_has_an_example_that_runs():
    """Not one whose every line is skipped."""
    skipped = []
    for name in api.names():
        lines = [line for line in (api.public(name).__doc__ or "").splitlines() if line.lstrip().startswith(">>>")]
        if inspect.isclass(api.public(name)) and lines and all("+SKIP" in line for line in lines):
            skipped.append(name)
    assert skipped == []


def validation_codes():
    """Checks of numpydoc that are left out, as pyproject.toml lists them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["numpydoc_validation"]
    first, *left_out = settings["checks"]
    assert first == "all"  # numpydoc's way to say: all but these
    return set(left_out)


def undocumented(path, member, message):
    """Arguments that a docstring does not explain, of those that numpydoc says have no entry of their own.

    A method of one line names its arguments in the sentence; those that mean the same everywhere are explained by the
    pages (`api.ARGUMENTS`); fields of a record are its attributes.
    """
    missing = set(re.findall(r"'(\*{0,2}\w+)'", message))
    docstring = inspect.getdoc(plain(member)) or ""
    if not inspect.isclass(member):
        missing -= {*api.ARGUMENTS, "deep", "**params", "**fit_params", "*rows", "**options"}
    return {name for name in missing if not re.search(rf"\b{name.strip('*')}\b", docstring)}


@pytest.mark.parametrize("path", [path for path, _ in members()])
def test_docstrings_are_valid(path):
    validate = pytest.importorskip("numpydoc.validate", reason="numpydoc is not installed").validate
    member = dict(members())[path]
    left_out = validation_codes()
    wrong = []
    for code, message in validate(path)["errors"]:
        if code in left_out or (code == "PR01" and inspect.isclass(member) and issubclass(member, Enum)):
            continue
        if code != "PR01" or undocumented(path, member, message):
            wrong.append((code, message))
    assert wrong == []


def test_arguments_that_a_method_leaves_out_are_explained():
    docstring = ["Class probabilities, (n, K)."]
    assert api.with_arguments(docstring, ["self", "X", "other"])[1:] == [
        "",
        "Parameters",
        "----------",
        "X",
        f"    {api.ARGUMENTS['X']}",
        "",
    ]
    explained = ["Fit.", "", "Parameters", "----------", "X, y", "    Rows.", "", "Returns", "-------", "self"]
    assert api.documented(explained) == {"X", "y"}
    assert api.with_arguments(explained, ["self", "X", "y"]) == explained


def test_properties_in_the_list_of_attributes_are_not_shown_twice():
    assert {"kernel_", "solution_", "n_features_in_"} <= api.attributes(po.GPClassifier)
    shown = [name for name, _ in api.own_members(po.GPClassifier)]
    assert "predict_interval" in shown
    assert "kernel_" not in shown


def test_methods_that_only_some_fits_have_are_shown():
    assert "sample_proba" in [name for name, _ in api.own_members(po.GaussianClassifier)]


def test_every_option_of_every_command_is_in_the_reference():
    import typer

    page = commands.page()
    program = typer.main.get_command(commands.app)
    assert len(program.commands) > 5
    for name, command in program.commands.items():
        _, _, section = page.partition(f"\n## posteriori {name}\n")
        section = section.partition("\n## ")[0]
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert all(f"`{spelling}`" in section for spelling in parameter.opts), (name, parameter.name)


def test_examples_of_commands_are_code_line_by_line():
    """A dash or a CSV in a paragraph would be set as text: `--format` with one long dash, lines joined by blanks."""
    page = commands.page()
    blocks = re.findall(r"^```sh\n(.*?)\n```$", page, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    assert "cat new.csv | posteriori predict penguins.model - --format jsonl" in lines
    assert "state,treat,wait,ask\nill,10,-50,-2\nwell,-5,0,-2" in blocks
