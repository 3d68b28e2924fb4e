"""What all tests share: how many examples hypothesis tries, and a line that says what this machine could not test."""

import shutil

import pytest
from hypothesis import settings

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

settings.register_profile("quick", max_examples=15, deadline=None)
settings.register_profile("thorough", max_examples=100, deadline=None)


def is_thorough(config):
    """Whether slow tests run too; then hypothesis tries many examples."""
    return "not slow" not in config.option.markexpr


def pytest_configure(config):
    settings.load_profile("thorough" if is_thorough(config) else "quick")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Among the slow tests are those of hypothesis, with many examples."""
    if is_thorough(config):
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter):
    skipped = sum("test_page_in_browser" in report.nodeid for report in terminalreporter.stats.get("skipped", []))
    if skipped and not any(map(shutil.which, BROWSERS)):
        terminalreporter.write_line(
            f"{skipped} tests of the report in a browser were skipped, as this machine has no Chromium: "
            "install it, for example with `apt-get install chromium`, and run `make test` again."
        )
