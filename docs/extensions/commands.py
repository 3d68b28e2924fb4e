"""The reference of the command line, written from the program's own description of itself."""

from __future__ import annotations

import re
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from posteriori.cli.app import app

PAGE = Path(__file__).parents[1] / "reference" / "command-line.md"

KINDS = {int: "INTEGER", float: "NUMBER"}
"""What stands for a value that has no name of its own."""


def page() -> str:
    """All commands with their arguments and options."""
    program: Any = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "Every command with its arguments and options, as `posteriori COMMAND --help` prints them. The guide is "
        "[Command line](../command-line.md).",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    lines += [f"| [`posteriori {name}`](#posteriori-{name}) | {_first(command)} |" for name, command in _each(program)]
    for name, command in _each(program):
        lines += ["", f"## posteriori {name}", "", "```text", _usage(name, command), "```", "", _text(command.help)]
        positional = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and not getattr(p, "hidden", False)]
        if positional:
            lines += ["", "| argument | |", "|---|---|"]
            lines += [f"| `{_name(p)}` | {_explanation(p)} |" for p in positional]
        if options:
            lines += ["", "| option | |", "|---|---|"]
            lines += [f"| {_spelling(p)} | {_explanation(p)} |" for p in options]
    return "\n".join([*lines, ""])


def pages() -> dict[Path, str]:
    """The page by its file."""
    return {PAGE: page()}


def _each(program: Any) -> list[tuple[str, Any]]:
    return [(name, command) for name, command in program.commands.items() if not command.hidden]


def _first(command: Any) -> str:
    return _escaped(_text(command.help).split("\n\n")[0])


def _text(text: str | None) -> str:
    """Help as paragraphs, where a line break is no more than a blank; what is indented is code, line by line."""
    parts = re.split(r"\n(?:[ \t]*\n)+", (text or "").replace("\b\n", "").strip())
    blocks = []
    for is_code, group in groupby(parts, key=lambda part: part.startswith("    ")):
        together = ["\n".join(line.strip() for line in part.splitlines()) for part in group]
        blocks += ["```sh\n" + "\n".join(together) + "\n```"] if is_code else [" ".join(p.split()) for p in together]
    return "\n\n".join(blocks)


def _usage(name: str, command: Any) -> str:
    words = [_name(p) if p.required else f"[{_name(p)}]" for p in command.params if p.param_type_name == "argument"]
    required = [f"{p.opts[0]} {_metavar(p)}" for p in command.params if p.param_type_name == "option" and p.required]
    return " ".join(["posteriori", name, *words, *required, "[OPTIONS]"])


def _name(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def _metavar(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(choice.value) for choice in kind)
    return parameter.metavar or KINDS.get(kind, "TEXT")


def _spelling(parameter: Any) -> str:
    takes_value = not parameter.is_flag
    names = [*parameter.opts, *parameter.secondary_opts]
    shown = ", ".join(f"`{name}`" for name in names)
    return f"{shown} `{_escaped(_metavar(parameter))}`" if takes_value else shown


def _explanation(parameter: Any) -> str:
    parts = [_text(getattr(parameter, "help", None) or "")]
    default = parameter.default
    shown = default is not None and default not in (False, ()) and not callable(default)
    if parameter.required and parameter.param_type_name == "option":
        parts.append("Required.")
    elif shown and not parameter.required and getattr(parameter, "show_default", True):
        parts.append(f"Default: `{getattr(default, 'value', default)}`.")
    return _escaped(" ".join(part for part in parts if part))


def _escaped(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
