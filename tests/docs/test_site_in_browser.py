"""The built site in a browser, served from this machine: no other is asked for anything, and pages fit the screen."""

import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
WIDTHS = (1280, 390)
PAGES = (
    "index.html",
    "reference/api/SoftmaxRegression.html",
    "gallery/models/plot_regions.html",
    "theory.html",
    "benchmarks/price.html",
    "reference/command-line.html",
    "start/five-minutes.html",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="the site is not built: `make docs` builds it"),
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address():
    """The site over HTTP, on a port of this machine alone."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=os.fspath(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture
def open_page(browser, address):
    """Opens pages; at the end nothing was asked of another machine, and no script has failed."""
    contexts, troubles = [], []

    def opened(name, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: request.url.startswith((address, "data:", "blob:")) or note(request.url))
        page.on("pageerror", lambda error: note(str(error)))
        page.on("response", lambda response: response.status < 400 or note(f"{response.status}: {response.url}"))
        page.goto(address + name, wait_until="load")
        return page

    note = troubles.append
    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_screen(open_page, name, width, scheme):
    page = open_page(name, width, scheme)
    too_wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(too_wide) <= 0
    light = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).every((c) => c > 127)"
    )
    assert light is (scheme == "light")
    assert page.locator("h1").count() == 1
    assert page.locator(".katex-error").count() == 0


def test_formulas_are_set(open_page):
    page = open_page("theory.html")
    assert page.locator(".math").count() > 400
    assert page.locator(".math:not(:has(.katex))").count() == 0
    assert page.evaluate("document.fonts.check('16px KaTeX_Main')")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_search_finds_a_class_without_a_network(open_page, width):
    page = open_page("search.html?q=SeparationWarning", width)
    first = page.locator("#search-results li a").first
    first.wait_for(timeout=20_000)
    links = page.locator("#search-results li a").evaluate_all("(all) => all.map((link) => link.getAttribute('href'))")
    assert any("reference/api/SeparationWarning.html" in link for link in links)


def test_the_switch_changes_light_to_dark(open_page):
    page = open_page("index.html")
    page.locator(".theme-switch-button:visible").first.click()
    page.locator(".theme-change-button[data-mode='dark']:visible").first.click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_live_model_answers(open_page):
    page = open_page("live.html")
    frame = page.frame_locator("#live-model")
    frame.locator("#live").wait_for(state="visible", timeout=30_000)
    assert frame.locator("#action").inner_text().strip()
