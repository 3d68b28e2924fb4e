"""Links of Markdown files that lead out of docs/, such as ``../GLOSSARY.md``, lead to the pages that show these files.

The same sources are read on the site and in a repository browser, where such a link opens the file itself.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
RESULTS = ROOT / "benchmarks" / "results"

PAGES = {
    ROOT / "README.md": DOCS / "index.md",
    ROOT / "GLOSSARY.md": DOCS / "reference" / "glossary.md",
    ROOT / "CHANGELOG.md": DOCS / "reference" / "changelog.md",
    ROOT / "CONTRIBUTING.md": DOCS / "reference" / "contributing.md",
    ROOT / "benchmarks" / "README.md": DOCS / "benchmarks" / "rules.md",
    ROOT / "benchmarks": DOCS / "benchmarks" / "rules.md",
    RESULTS: DOCS / "benchmarks" / "index.md",
    DOCS: DOCS / "explanation" / "index.md",
    DOCS / "decisions": DOCS / "decisions" / "index.md",
}
"""Files and folders of the repository, and the pages that show them."""

_TARGET = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def relinked(text: str, home: Path, page: Path) -> str:
    """The text of a file in the folder `home`, with links as they must be in the file `page` of the site."""

    def replacement(match: re.Match[str]) -> str:
        opening, target, anchor, closing = match.groups()
        if "://" in target or target.startswith(("mailto:", "/", "data:")):
            return match[0]
        file = Path(os.path.normpath(home / target))
        shown = page_of(file)
        if shown == file and home == page.parent:
            return match[0]
        return f"{opening}{os.path.relpath(shown, page.parent)}{anchor or ''}{closing}"

    return _TARGET.sub(replacement, text)


def page_of(file: Path) -> Path:
    """The page that shows a file, or the file itself."""
    if file.parent == RESULTS and file.suffix == ".md":
        return DOCS / "benchmarks" / file.name
    return PAGES.get(file, file)


def _relink_page(app: Any, docname: str, source: list[str]) -> None:
    page = Path(app.env.doc2path(docname))
    if page.suffix == ".md":
        source[0] = relinked(source[0], page.parent, page)


def setup(app: Any) -> dict[str, bool]:
    """Rewrite links before a page is read."""
    app.connect("source-read", _relink_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
