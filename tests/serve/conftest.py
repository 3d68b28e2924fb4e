"""Models to serve, a client for an application in this process, and a server in a process of its own."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from tests.serve.asgi import client_of

import posteriori as po

PENGUINS = Path(po.__file__).parent / "tables" / "bundled" / "penguins.csv"


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command that is run within a test sets up the logs of the whole process."""
    logs = [logging.getLogger(name) for name in ("posteriori.serve", "uvicorn", "uvicorn.error")]
    before = [(log.handlers, log.propagate, log.level) for log in logs]
    yield
    for log, (handlers, propagate, level) in zip(logs, before, strict=True):
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)


@pytest.fixture(scope="session")
def penguins() -> pd.DataFrame:
    return pd.read_csv(PENGUINS)


@pytest.fixture(scope="session")
def model(penguins: pd.DataFrame) -> Any:
    return make_pipeline(po.TableEncoder(), po.BayesianSoftmaxRegression()).fit(penguins, "species")


@pytest.fixture(scope="session")
def utility() -> po.Utility:
    return po.Utility([[1.0, -2.0], [-5.0, 3.0], [0.5, 0.25]], ["Adelie", "Chinstrap", "Gentoo"], ["keep", "release"])


@pytest.fixture(scope="session")
def model_file(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "penguins.model"
    po.save(model, path)
    return path


@pytest.fixture(scope="session")
def numbers_model() -> Any:
    """A classifier without a table in front: three classes with labels 0, 1, 2, four columns without names."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 40)
    return po.GaussianClassifier().fit(rng.normal(size=(120, 4)) + y[:, None], y)


@pytest.fixture
def client(model: Any) -> Any:
    from posteriori.serve import app

    return client_of(app({"penguins": model}))


@dataclass
class Process:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    lines: list[str] = field(default_factory=list)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", **options)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def serving(*arguments: str, timeout: float = 60.0, own_group: bool = False, ready: bool = True) -> Iterator[Process]:
    """A server on a free port; it is ended when the block ends, if it has not ended before.

    `own_group` keeps signals to its group from this process; `ready` is whether to wait until it answers.
    """
    command = [sys.executable, "-m", "posteriori", "serve", "--port", "0", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=own_group
    ) as process:
        assert process.stderr is not None
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        found = None
        lines = []
        for line in process.stderr:
            lines.append(line)
            found = re.search(r"serves on (http://\S+)", line)
            if found:
                break
        assert found, f"the server did not start: {''.join(lines)}"
        served = Process(process, found[1])
        reader = threading.Thread(target=served.lines.extend, args=(process.stderr,), daemon=True)
        reader.start()
        try:
            if ready:
                httpx.Client(transport=httpx.HTTPTransport(retries=20), timeout=30).get(f"{served.url}/v2/health/live")
            yield served
        finally:
            timer.cancel()
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
            reader.join(5)


@pytest.fixture(scope="session")
def serve() -> Callable[..., Any]:
    return serving
