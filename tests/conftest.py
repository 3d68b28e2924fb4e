"""What all tests share: how thorough they are, a browser, and a line that says what this machine could not test.

By default hypothesis tries few examples, and XLA compiles quickly what is then run once: most of the time of a small
problem goes into compiling. With the slow tests both are as users have them, or better. Where several processes run
tests, the BLAS of each has one thread: more threads than cores only wait for each other.
"""

import gc
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from hypothesis import settings

AXE = Path(__file__).parent / "assets" / "axe-core" / "axe.min.js"
collect_ignore = ["clients"]
"""Tests in an environment of their own: `make test-clients`."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
NO_EMITTERS = "--xla_cpu_use_fusion_emitters=false"
WITH_EMITTERS = ("0.8.", "0.9.", "0.10.")
"""Versions of jaxlib that are known to have this flag: XLA ends the process at a flag that it does not know."""

settings.register_profile("quick", max_examples=15, deadline=None)
settings.register_profile("thorough", max_examples=100, deadline=None)


SLOW_EXAMPLES = {"posteriori.gp.deep_classifier.DeepGPClassifier"}
"""Examples in docstrings that take more than a few seconds."""


def is_thorough(config):
    """Whether slow tests run too."""
    return "not slow" not in config.option.markexpr


def pytest_configure(config):
    settings.load_profile("thorough" if is_thorough(config) else "quick")
    if getattr(config.option, "numprocesses", None):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes inherit it; n_jobs stays as users have it
    os.environ.setdefault("POSTERIORI_JAX_CACHE", "off")  # tests leave nothing in the user's folders
    if not is_thorough(config):
        os.environ.setdefault("XLA_FLAGS", quick_flags())  # before anything imports JAX


def quick_flags():
    """Flags with which XLA spends little time on optimising."""
    try:
        known = version("jaxlib").startswith(WITH_EMITTERS)
    except PackageNotFoundError:
        return ""
    return f"{QUICK} {NO_EMITTERS}" if known else QUICK


def pytest_make_parametrize_id(config, val, argname):
    """Name bytes by their argument: gzip writes the time into them, and parallel processes would differ."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Among the slow tests are examples that compile much, most in a browser, and many examples of hypothesis."""
    for item in items:
        in_browser = "browser" in getattr(item, "fixturenames", ())
        if item.name in SLOW_EXAMPLES or (in_browser and not item.get_closest_marker("quick")):
            item.add_marker(pytest.mark.slow)
    if is_thorough(config):
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(pytest.mark.slow)


MOST_MAPS = 25_000
"""Pieces of memory after which compiled programs are given back: a process may have 65,530, and XLA ends it beyond."""


@pytest.fixture(scope="module", autouse=True)
def programs_given_back():
    """Give compiled programs back after a module, where there are many of them."""
    yield
    if "jax" in sys.modules and memory_maps() > MOST_MAPS:
        sys.modules["jax"].clear_caches()
        gc.collect()


def memory_maps():
    """Pieces of memory that the process has mapped; 0 where the system does not tell."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            return sum(1 for _ in maps)
    except OSError:
        return 0


def pytest_terminal_summary(terminalreporter):
    skipped = sum(
        "Chromium is not installed" in str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])
    )
    if skipped and not any(map(shutil.which, BROWSERS)):
        terminalreporter.write_line(
            f"{skipped} tests in a browser were skipped, as this machine has no Chromium: "
            "install it, for example with `apt-get install chromium`, and run `make test` again."
        )


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

    def make(width=1000, scheme="light", expected=(), **options):
        """A page; messages of the console that begin with what is expected are no trouble."""
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.text.startswith(tuple(expected)) or troubles.append(message.text))
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
