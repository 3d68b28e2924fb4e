"""``llms.txt``: every page with its address and one line of what it says, for programs that read the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes

MOST = 160
HEAD = """# posteriori

> Probabilistic classification for Python: class probabilities that can be trusted, intervals on them, and the action
> with the highest expected utility. Classifiers follow scikit-learn; a command line goes from a CSV to a decision.
"""


def description(doctree: nodes.document) -> str:
    """The first sentence of the first paragraph of a page."""
    for paragraph in doctree.findall(nodes.paragraph):
        inside = paragraph.parent
        while inside is not None and not isinstance(inside, (nodes.table, nodes.list_item, nodes.Admonition)):
            inside = inside.parent
        text = " ".join(paragraph.astext().split())
        if inside is None and len(text) > 10:
            sentence = re.split(r"(?<=[.:?!])\s", text, maxsplit=1)[0]
            return sentence if len(sentence) <= MOST else sentence[: MOST - 1].rsplit(" ", 1)[0] + " ..."
    return ""


def _write(app: Any, exception: Exception | None) -> None:
    if exception is not None or app.builder.name != "html":
        return
    sections: dict[str, list[str]] = {}
    for docname in sorted(app.env.found_docs):
        doctree = app.env.get_doctree(docname)
        title = app.env.titles[docname].astext()
        text = description(doctree)
        section = docname.split("/")[0] if "/" in docname else "guides"
        sections.setdefault(section, []).append(f"- [{title}]({docname}.html){': ' + text if text else ''}")
    parts = [HEAD, *(f"## {name}\n\n" + "\n".join(lines) + "\n" for name, lines in sections.items())]
    Path(app.outdir, "llms.txt").write_text("\n".join(parts), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Write the index when the site is built."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
