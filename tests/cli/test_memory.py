"""What the command line says of memory."""

import subprocess
import sys

import numpy as np
import pytest

from posteriori.cli.memory import available_memory, peak_memory

CODE = "from posteriori.cli.memory import peak_memory; print(peak_memory())"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system tells other numbers")
def test_the_peak_is_that_of_the_process_and_not_of_the_one_that_began_it():
    held = np.ones(60_000_000)  # 480 MB
    assert peak_memory() > 400
    child = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(child.stdout) < 300
    assert held[-1] == 1.0


def test_some_memory_is_free():
    assert 1e7 < available_memory() < 1e15
