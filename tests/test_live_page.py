"""The live page of the site: a graph evaluated in a browser gives what Python gives."""

import functools
import http.server
import importlib.util
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import posteriori as po

pytest.importorskip("onnx")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

SOURCE = Path(__file__).parents[1] / "docs" / "live" / "build.py"
PENGUINS = [(198, 3900, "female"), (172, 2700, "male"), (231, 6300, "male"), (205, 4410, "female"), (190, 5000, "male")]


@pytest.fixture(scope="module")
def live():
    spec = importlib.util.spec_from_file_location("live_build", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(live):
    return live.fitted()


@pytest.fixture(scope="module")
def address(live, tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    live.build(folder)
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def opened(address, new_page):
    asked = []

    def open_page(**options):
        page = new_page(**options)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.wait_for_selector("#best", timeout=60_000)
        return page

    yield open_page
    assert [url for url in asked if not url.startswith((address.removesuffix("index.html"), "data:", "blob:"))] == []


def put(page, flipper, mass, sex):
    """Set the sliders, and wait for the answer to that."""
    for name, value in (("flipper_length_mm", flipper), ("body_mass_g", mass)):
        page.locator(f"#{name}").fill(str(value))
    page.locator("#sex").select_option(sex)
    row = {"flipper_length_mm": flipper, "body_mass_g": mass, "sex": sex}
    for _ in range(200):
        shown = page.evaluate("window.shown")
        if shown["row"] == row:
            return shown
        page.wait_for_timeout(20)
    raise AssertionError(f"the page shows {shown['row']}, not {row}")


def test_probabilities_intervals_and_decisions_are_those_of_python(opened, model):
    page = opened()
    utility = po.Utility.zero_one(model.classes_).with_reject(0.8, "measure the bill")
    for penguin in PENGUINS:
        shown = put(page, *penguin)
        table = pd.DataFrame([penguin], columns=["flipper_length_mm", "body_mass_g", "sex"])
        P = model.predict_proba(table)
        lower, upper = model[-1].predict_interval(model[:-1].transform(table), 0.95)
        for name, value in (("probabilities", P), ("lower", lower), ("upper", upper)):
            np.testing.assert_allclose(shown[name], value[0], rtol=0, atol=1e-6, err_msg=name)
        assert shown["action"] == po.decide(P, utility).actions[0]
        assert page.locator("#best").inner_text() == shown["action"]


def test_another_utility_is_another_decision(opened):
    page = opened()
    assert put(page, *PENGUINS[0])["action"] == "measure the bill"
    for state in ("Adelie", "Chinstrap", "Gentoo"):
        page.get_by_label(f"Utility of measure the bill when the truth is {state}").fill("0.4")
    assert page.locator("#best").inner_text() == "Chinstrap"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 900])
def test_there_are_no_barriers(opened, barriers, width, scheme):
    page = opened(width=width, scheme=scheme)
    assert barriers(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
