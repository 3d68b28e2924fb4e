"""A server without the packages that it needs."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("missing", ["starlette", "orjson"])
def test_without_its_packages_the_server_names_the_command_that_installs_them(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
import posteriori as po
try:
    po.serve.app
except ImportError as error:
    print(error)
    sys.exit(isinstance(error, ModuleNotFoundError))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(f"The server needs {missing}")
    assert ran.stdout.endswith("which is not installed: pip install 'posteriori[serve]'.\n")
