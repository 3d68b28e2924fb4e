"""Long lines that code prints are broken, unless they belong to a table: that keeps its columns, and scrolls."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

PRINTED = {"output", "sphx-glr-script-out"}
_COLUMNS = re.compile(r"\S {2,}\S")


def is_table(text: str) -> bool:
    r"""Whether most lines of a text have columns with room between them.

    >>> is_table("name   log_loss\nbayes    0.0856")
    True
    >>> is_table("X contains NaN, first in row 3:  remove or fill in such rows.\nDone.")
    False
    """
    lines = text.splitlines()
    return sum(bool(_COLUMNS.search(line)) for line in lines) > len(lines) / 2


def _mark(app: Any, doctree: nodes.document, docname: str) -> None:
    for block in doctree.findall(nodes.literal_block):
        if PRINTED & set(block["classes"]) and not is_table(block.astext()):
            block["classes"].append("breaks")


def setup(app: Any) -> dict[str, bool]:
    """Look at what was printed on each page."""
    app.connect("doctree-resolved", _mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
