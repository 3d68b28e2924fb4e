"""Is every link of the built site good? Prints what was built, and fails if a link leads nowhere or out of the site.

    python docs/check_site.py docs/_build/html [--since SECONDS]

Every address of a page (links, pictures, scripts, styles) must be a file of the site, and what follows # a place in it.
Addresses in the web are not followed: links to them must be well formed, and nothing may be loaded from them.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src")}
"""Where a browser loads what is named without being asked."""
POINTERS = {"canonical", "next", "prev", "search", "index", "author"}
"""Kinds of <link> that name a page and load nothing."""
THUMBNAIL = re.compile(r"_thumb\.\w+$")
"""Small pictures of the gallery's index, whose titles stand below them: to hear these twice helps nobody."""
STYLE_URL = re.compile(r"url\(\s*['\"]?(?!data:|#)([^'\")]+)['\"]?\s*\)|@import\s+['\"]([^'\"]+)['\"]")


class Page(HTMLParser):
    """The addresses that a page names, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, bool]] = []
        """Address, and whether it is loaded."""
        self.places: set[str] = set()
        self.without_alt: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what a tag names."""
        found = dict(attributes)
        self.places |= {value for key in ("id", "name") if (value := found.get(key))}
        if tag == "img" and not (found.get("alt") or "").strip() and not THUMBNAIL.search(found.get("src") or ""):
            self.without_alt.append(found.get("src") or "")
        for key in ("href", "src"):
            if (address := found.get(key)) is not None:
                pointer = tag == "link" and (found.get("rel") or "") in POINTERS
                self.links.append((address, (tag, key) in LOADED and not pointer))


def troubles(site: Path) -> list[str]:
    """What is wrong, one sentence each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in html_files(site)}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: {what}" for what in _wrong_links(path, page, pages)]
        found += [f"{name}: picture {source} has no alt text" for source in page.without_alt]
    for style in site.rglob("*.css"):
        for address in (a or b for a, b in STYLE_URL.findall(style.read_text(encoding="utf-8"))):
            if address.startswith(("http:", "https:", "//")):
                found.append(f"{style.relative_to(site)}: loads {address} from the web")
            elif not (style.parent / address.partition("?")[0].partition("#")[0]).is_file():
                found.append(f"{style.relative_to(site)}: {address} is not there")
    return found


def html_files(site: Path) -> list[Path]:
    """Pages of the site, without the files that its theme brings."""
    return [path for path in sorted(site.rglob("*.html")) if path.relative_to(site).parts[0] != "_static"]


def _wrong_links(path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    for address, loaded in page.links:
        parts = urlsplit(address)
        if parts.scheme in ("data", "mailto", "javascript"):
            continue
        if parts.scheme or parts.netloc:
            if loaded:
                yield f"loads {address} from the web"
            elif parts.scheme not in ("http", "https") or "." not in parts.netloc:
                yield f"{address} is no address"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target = target / "index.html"
        if not target.is_file():
            yield f"{address} is not there"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
            yield f"{address}: no such place in the page"


def executed(site: Path) -> tuple[int, int]:
    """Pages whose code cells ran, and examples of the gallery that ran."""
    sources = site.parent.parent
    cells = [
        path
        for path in sources.rglob("*.md")
        if "_build" not in path.parts and "{code-cell}" in path.read_text(encoding="utf-8")
    ]
    examples = list((sources.parent / "examples" / "gallery").rglob("plot_*.py"))
    return len(cells), len(examples)


def main() -> None:
    """Check the site, and print what was built."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--since", type=float, help="when the build began, in seconds since 1970")
    options = parser.parse_args()
    site = options.site.resolve()
    wrong = troubles(site)
    for trouble in wrong:
        print(trouble)
    pages, examples = executed(site)
    report = {
        "pages": len(html_files(site)),
        "pages with code that ran": pages,
        "examples of the gallery": examples,
        "warnings": 0,  # Sphinx ends with an error at the first one
        "wrong links": len(wrong),
    }
    if options.since is not None:
        report["seconds"] = round(time.time() - options.since)
    print(", ".join(f"{name}: {number}" for name, number in report.items()))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
