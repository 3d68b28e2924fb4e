"""All tests of this folder run in one process of pytest-xdist (--dist loadgroup), where they share compilations."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("gp"))
