"""What all tests share: a line at the end that says what this machine could not test, and how it can."""

import shutil

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def pytest_terminal_summary(terminalreporter):
    skipped = sum("test_page_in_browser" in report.nodeid for report in terminalreporter.stats.get("skipped", []))
    if skipped and not any(map(shutil.which, BROWSERS)):
        terminalreporter.write_line(
            f"{skipped} tests of the report in a browser were skipped, as this machine has no Chromium: "
            "install it, for example with `apt-get install chromium`, and run `make test` again."
        )
