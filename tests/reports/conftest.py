"""A browser, and pages in it of which every complaint is kept."""

import shutil
from pathlib import Path

import pytest
from tests.conftest import BROWSERS

AXE = Path(__file__).parents[1] / "assets" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser):
    """Makes pages, and tells at the end that nothing was complained of."""
    contexts, troubles = [], []

    def make(width=1000, scheme="light", **options):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        return page

    yield make
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def barriers():
    """Finds what keeps people with disabilities from using a page, by axe-core: WCAG 2.2 AA and good practice."""

    def found(page):
        page.evaluate(AXE.read_text(encoding="utf-8"))  # the protocol's evaluation is not bound by the page's policy
        page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        violations = page.evaluate("axe.run().then((result) => result.violations)")
        return [(rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in violations]

    return found
