"""A server in a process of its own, and what the library itself says of the rows that clients send to it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = os.environ.get("POSTERIORI_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
"""The Python that has the library and its server."""
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}
COLUMNS = ("island", "bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "sex", "year")


@dataclass
class Server:
    """A server that is running."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    command = [PYTHON, "-m", "posteriori", "serve", "--port", "0", "--log-level", "warning", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        timer = threading.Timer(300, process.kill)
        timer.start()
        lines = []
        try:
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"serves on (http://\S+)", line):
                    yield Server(process, found[1])
                    break
            else:
                raise AssertionError(f"the server did not start: {''.join(lines)}")
        finally:
            timer.cancel()
            process.terminate()
            process.communicate(timeout=30)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which(PYTHON) is None:
        pytest.exit(f"{PYTHON} is not there: name a Python that has posteriori by POSTERIORI_PYTHON.")
    made = tmp_path_factory.mktemp("models")
    subprocess.run([PYTHON, str(HERE / "models.py"), str(made)], check=True, env=ENVIRONMENT, stderr=sys.stderr)
    return made


@pytest.fixture(scope="session")
def said(folder: Path) -> dict[str, Any]:
    """What the library says."""
    return json.loads((folder / "said.json").read_text())


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Server]:
    """Three models: penguins in two versions, and one of numbers without names."""
    models = (f"penguins@1={folder}/old.model", f"penguins@2={folder}/new.model", f"matrix@1={folder}/matrix.model")
    with serving(*models) as running:
        yield running


@pytest.fixture(scope="session")
def alone(folder: Path) -> Iterator[Server]:
    """A server with one model, as those of MLflow have."""
    with serving(f"penguins={folder}/new.model") as running:
        yield running


@pytest.fixture(scope="session")
def rows(said: dict[str, Any]) -> pd.DataFrame:
    """Rows with missing numbers and missing text."""
    table = pd.DataFrame(said["rows"], columns=COLUMNS)
    assert table["sex"].isna().any()
    assert table["body_mass_g"].isna().any()
    return table
