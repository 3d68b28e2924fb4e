"""Formulas as TeX in the page, set in the browser by KaTeX, which comes with the site."""

from __future__ import annotations

from typing import Any

from docutils import nodes

FILES = ("katex/katex.min.css", "katex/katex.min.js", "formulas.js")


def _tex(text: str) -> str:
    return rf"\begin{{aligned}}{text}\end{{aligned}}" if r"\\" in text or "&" in text else text


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(self.starttag(node, "span", "", CLASS="math"))
    self.body.append(f"{self.encode(node.astext())}</span>")
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    for part in node.astext().split("\n\n"):
        self.body.append(self.starttag(node, "div", "", CLASS="math", tabindex="0"))
        self.body.append(f"{self.encode(_tex(part.strip()))}</div>")
    raise nodes.SkipNode


def _add_files(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """KaTeX is loaded by the pages that have a formula."""
    if doctree is not None and next(doctree.findall(lambda n: isinstance(n, (nodes.math, nodes.math_block))), None):
        style, *scripts = FILES
        app.add_css_file(style)
        for script in scripts:
            app.add_js_file(script, loading_method="defer")


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer, and choose it."""
    app.add_html_math_renderer("katex", inline_renderers=(_inline, None), block_renderers=(_block, None))
    app.config.html_math_renderer = "katex"
    app.connect("html-page-context", _add_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
