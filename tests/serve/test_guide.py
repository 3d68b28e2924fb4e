"""The examples of docs/serving.md do what the guide says, against a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.serve.asgi import client_of
from tests.serve.conftest import Process, serving
from tests.serve.test_plain import GOOD

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "serving.md"
CLIENTS = ROOT / ".venv-clients" / "bin" / "python"


class Block(NamedTuple):
    """Code of the guide, in a language, and the answer shown below it."""

    language: str
    code: str
    answer: Any

    @property
    def title(self) -> str:
        return f"{self.language}: {self.code.strip().splitlines()[-1][:60]}"


def blocks() -> list[Block]:
    pattern = r"^```(?:\{code-block\} )?(\w+)\n(:class: clients\n)?(.*?)^```$"
    found = []
    for language, clients, code in re.findall(pattern, GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        if language == "json":
            found[-1] = found[-1]._replace(answer=json.loads(code))
        else:
            found.append(Block("clients" if clients else language, code, None))
    return found


BLOCKS = blocks()
START, *PYTHON = [block for block in BLOCKS if block.language == "python"]
MOUNTED = PYTHON.pop()
SHELL = [block for block in BLOCKS if block.language == "sh"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the guide begins: a model and tables."""
    path = tmp_path_factory.mktemp("guide")
    (path / "token.txt").write_text("a-token-of-many-letters")
    run([sys.executable, "-c", START.code], path)
    return path


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Process]:
    with serving(str(folder / "penguins.model"), timeout=300) as process:
        yield process


def run(command: list[str], folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def at(code: str, server: Process) -> str:
    """The code, with the port of this server."""
    return code.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}").replace(
        '"127.0.0.1", 8000', f'"127.0.0.1", {server.port}'
    )


def holds(said: Any, shown: Any) -> bool:
    """Whether an answer holds what is shown of it, numbers to three digits."""
    if isinstance(shown, dict):
        return all(name in said and holds(said[name], value) for name, value in shown.items())
    if isinstance(shown, list):
        return len(said) == len(shown) and all(map(holds, said, shown))
    if isinstance(shown, float):
        return said == pytest.approx(shown, abs=5.1e-4)
    return bool(said == shown)


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.title)
def test_commands(block: Block, server: Process, folder: Path) -> None:
    said = run(["bash", "-euo", "pipefail", "-c", at(block.code, server)], folder)
    if block.answer is not None:
        assert holds(json.loads(said), block.answer), said
    else:
        assert "error" not in said


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.title)
def test_python(block: Block, server: Process, folder: Path) -> None:
    assert run([sys.executable, "-c", at(block.code, server)], folder).strip()


def test_mounted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(MOUNTED.code, names)
    reply = client_of(names["application"]).post("/birds/predict", json=GOOD)
    assert reply.status_code == 200
    assert reply.json()["model"] == "penguins"


@pytest.mark.slow
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "clients"], ids=lambda b: b.title)
def test_clients(block: Block, server: Process, folder: Path) -> None:
    if not CLIENTS.exists():
        pytest.skip("the clients of others are not there: `make test-clients` installs them")
    assert "Adelie" in run([str(CLIENTS), "-W", "ignore", "-c", at(block.code, server)], folder)


@pytest.mark.slow
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "r"], ids=lambda block: block.title)
def test_r(block: Block, server: Process, folder: Path) -> None:
    known = shutil.which("Rscript") and subprocess.run(
        ["Rscript", "-e", "stopifnot(requireNamespace('httr2', quietly = TRUE))"], capture_output=True, check=False
    )
    if not known or known.returncode:
        pytest.skip("R with httr2 is not there")
    assert '"Adelie"' in run(["Rscript", "-e", at(block.code, server)], folder)


def test_limits_are_those_of_the_server() -> None:
    """The tables of the guide hold the numbers of the code."""
    from posteriori.serve.connection import HEAD_SECONDS
    from posteriori.serve.guard import Limits

    guide, limits = GUIDE.read_text(encoding="utf-8"), Limits()
    for line in (
        f"| body | {limits.body_bytes >> 20} MiB |",
        f"| rows of one request | {limits.rows:,} |",
        f"| columns | {limits.columns:,} |",
        f"| headers of a request, with its address | 64 KiB, in {HEAD_SECONDS:g} seconds |",
        f"| time in which a body arrives | {limits.body_seconds:g} seconds |",
        f"| time for an answer | {limits.seconds:g} seconds |",
        f"| bodies in memory at once | {limits.waiting_bytes >> 20} MiB; others wait |",
    ):
        assert line in guide
