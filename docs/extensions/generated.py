"""Pages that are written from other sources before the site is built, and are not kept in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from live.build import build

from extensions import api, commands, results, theory
from extensions.links import DOCS, ROOT, relinked

REFERENCE = DOCS / "reference"


def glossary() -> str:
    """GLOSSARY.md, its lists of words as glossaries to which pages refer by ``{term}``."""
    text = relinked((ROOT / "GLOSSARY.md").read_text(encoding="utf-8"), ROOT, REFERENCE / "glossary.md")
    text = _WORDS.sub(lambda match: f":::{{glossary}}\n{_entries(match[0])}:::\n", text + "\n")
    return text.rstrip() + "\n"


_WORDS = re.compile(r"(?:^- \*\*.+\n(?:^ +.*\n)*)+", re.MULTILINE)


def _entries(words: str) -> str:
    """A list of words, ``- **word** x: what it means``, as entries of a glossary."""
    lines = []
    for part in re.split(r"^- ", words, flags=re.MULTILINE)[1:]:
        head, _, definition = part.partition(":")
        terms = re.findall(r"\*\*(.+?)\*\*", head)
        beside = re.sub(r"\*\*.+?\*\*", "", head).strip(" ,")
        lines += [*terms, f"    {f'({beside}) ' if beside else ''}{' '.join(definition.split())}", ""]
    return "\n".join(lines)


def root_pages() -> dict[Path, str]:
    """Files of the repository's root as pages."""
    found = {REFERENCE / "glossary.md": glossary()}
    for name in ("CHANGELOG", "CONTRIBUTING"):
        page = REFERENCE / f"{name.lower()}.md"
        found[page] = relinked((ROOT / f"{name}.md").read_text(encoding="utf-8"), ROOT, page)
    return found


def _write(app: Any, config: Any) -> None:
    pages = root_pages() | api.pages() | commands.pages() | results.pages() | theory.pages()
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _add_live_model(app: Any, exception: Exception | None) -> None:
    if exception is None and app.builder.name == "html":
        build(Path(app.outdir, "live-model"))


def setup(app: Any) -> dict[str, bool]:
    """Write the pages before Sphinx looks for its sources, and the live model beside what it has built."""
    app.connect("config-inited", _write)
    app.connect("build-finished", _add_live_model)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
