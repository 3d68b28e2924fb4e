"""The components of page and report in a browser: charts, decisions, the table of utilities."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posteriori import Utility, decide
from posteriori.decision.scores import realised_utility
from posteriori.reports import page as report_page

pytestmark = pytest.mark.xdist_group("browser")  # one process, one browser

ORIGIN = "http://components.test"
START = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Components</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'self'; style-src 'self'; script-src 'self'">
<link rel="stylesheet" href="/style.css"></head>
<body><main><h1>Components</h1><div id="here"></div></main><script type="module" src="/start.js"></script></body>
</html>"""
SCRIPT = """import * as charts from "./charts.js"; import * as decide from "./decide.js";
import * as elements from "./elements.js"; import * as table from "./utility_table.js";
Object.assign(window, { charts, ...decide, elements, ...table, told: [], said: [] });
window.here = document.getElementById("here");
window.add = (name, given) => here.replaceChildren(charts[name](given));
window.start = (given) => {
  window.utility = utilityTable(here, given, (utility) => told.push(utility), (text) => said.push(text));
};
window.started = true;"""
NAMES = ["Adelie", "Chinstrap", "Gentoo"]


@pytest.fixture
def opened(new_page):
    """A page with the modules as they are in the package, under the policy of the page that is served."""

    def answer(route):
        name = route.request.url.removeprefix(f"{ORIGIN}/")
        if name in ("", "favicon.ico"):
            return route.fulfill(body=START, content_type="text/html")
        body = SCRIPT if name == "start.js" else report_page._read(name)
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        return route.fulfill(body=body, content_type=kind)

    def open_page(**options):
        page = new_page(**options)
        page.route(f"{ORIGIN}/**", answer)
        page.goto(f"{ORIGIN}/")
        page.wait_for_function("window.started")
        return page

    return open_page


@pytest.fixture(scope="module")
def engine(browser):
    """A page for scripts alone, which need not be opened anew for every example."""
    page = browser.new_page()
    text = "".join(re.sub(r"^export ", "", report_page._read("decide.js"), flags=re.M))
    page.evaluate(f"{text}; Object.assign(window, {{ decide, judge }})")
    yield page
    page.close()


# --- decisions --------------------------------------------------------------------------------------------------------


def in_the_page(engine, P, U):
    script = """([P, U]) => { const found = decide(Float64Array.from(P.flat()), U);
      return Object.fromEntries(Object.entries(found).map(([key, values]) => [key, Array.from(values, String)])); }"""
    found = engine.evaluate(script, [P.tolist(), U.tolist()])
    return {key: np.array(values, dtype=float) for key, values in found.items()}


def check_decisions(engine, P, U):
    expected = decide(P, Utility(U, range(U.shape[0]), range(U.shape[1])))
    found, n = in_the_page(engine, P, U), len(P)
    close = {"rtol": 1e-13, "atol": 1e-15 * np.abs(U).max()}
    np.testing.assert_array_equal(found["best"], expected.codes)
    np.testing.assert_allclose(found["expected"].reshape(n, -1), expected.expected_utility, **close)
    np.testing.assert_allclose(found["highest"], expected.expected_utility.max(axis=1), **close)
    loose = {"rtol": 1e-12, "atol": 1e-14 * np.abs(U).max()}  # differences of two such sums
    np.testing.assert_allclose(found["margin"], expected.margin, **loose)
    np.testing.assert_allclose(found["valueOfInformation"], expected.value_of_information, **loose)
    np.testing.assert_array_equal(found["margin"] == 0, expected.margin == 0)  # ties are ties in both


@pytest.mark.quick
@pytest.mark.parametrize(("K", "A"), [(2, 1), (2, 2), (3, 7), (7, 3), (40, 41)])
def test_decisions_are_those_of_the_library(engine, K, A):
    rng = np.random.default_rng(K)
    check_decisions(engine, rng.dirichlet(np.ones(K), 200), rng.normal(size=(K, A)) * 100)
    check_decisions(engine, rng.dirichlet(np.full(K, 0.05), 200), rng.integers(-3, 4, (K, A)).astype(float))


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12, 3e-300])
def test_ties_within_rounding_go_to_the_first(engine, scale):
    P = np.array([[0.1 + 0.2, 0.7 - 1e-17], [0.3, 0.7], [0.7, 0.3], [0.5, 0.5], [1, 0]])
    U = np.array([[0.7, 0.3, 0.7, 1.0], [0.3, 0.7, 0.3, 0.0]]) * scale
    check_decisions(engine, P, U)
    check_decisions(engine, P, np.zeros((2, 3)))
    thirds = np.full((4, 3), 1 / 3)
    check_decisions(engine, thirds, np.eye(3)[:, [2, 0, 1]] * scale)


def test_ties_that_rounding_would_break(engine):
    """Whole utilities and tenths, so that ties are known exactly, where the two sums differ in floats."""
    rng, tenths, found = np.random.default_rng(0), np.array([1, 2, 3, 4]), []
    while len(found) < 20:
        U = rng.integers(-9, 10, (4, 2))
        first, second = (sum(tenths[k] / 10 * U[k, a] for k in range(4)) for a in (0, 1))
        if tenths @ U[:, 0] == tenths @ U[:, 1] and first != second:
            found.append(first > second)
            decided = in_the_page(engine, tenths[None] / 10, U.astype(float))
            assert (decided["best"][0], decided["margin"][0]) == (0, 0)
            check_decisions(engine, tenths[None] / 10, U.astype(float))
    assert 0 < sum(found) < 20


@given(data=st.data())
def test_decisions_of_any_utilities(engine, data):
    K, A = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    numbers = st.sampled_from([0.0, 1.0, -1.0, 0.5, 0.1, 0.2, 0.3, 1e-9, -250.0])
    U = np.array([[data.draw(numbers) for _ in range(A)] for _ in range(K)])
    parts = np.array([[data.draw(st.integers(0, 9)) for _ in range(K)] for _ in range(5)], dtype=float) + 0.01
    check_decisions(engine, parts / parts.sum(axis=1, keepdims=True), U)


def test_what_decisions_were_worth(engine):
    rng = np.random.default_rng(0)
    P, U, truth = rng.dirichlet(np.ones(3), 300), rng.normal(size=(3, 4)), rng.integers(0, 3, 300)
    found = engine.evaluate(
        "([P, U, truth]) => judge(truth, decide(Float64Array.from(P.flat()), U), U)",
        [P.tolist(), U.tolist(), truth.tolist()],
    )
    utility, decisions = Utility(U, range(3), range(4)), decide(P, Utility(U, range(3), range(4)))
    values = U[truth, decisions.codes]
    assert found["realised"] == pytest.approx(realised_utility(truth, decisions.actions, utility), rel=1e-12)
    assert found["error"] == pytest.approx(values.std(ddof=1) / np.sqrt(300), rel=1e-12)
    assert found["expected"] == pytest.approx(decisions.expected_utility.max(axis=1).mean(), rel=1e-12)
    assert found["known"] == pytest.approx(U.max(axis=1)[truth].mean(), rel=1e-12)
    assert found["always"] == pytest.approx(U[truth].mean(axis=0), rel=1e-12)
    assert found["fixed"] == found["always"][found["single"]] == max(found["always"])
    counts = np.zeros((3, 4), dtype=int)
    np.add.at(counts, (truth, decisions.codes), 1)
    assert found["counts"] == counts.tolist()


# --- charts -----------------------------------------------------------------------------------------------------------

LONG = [f"a name of a class that is much longer than any chart has room for, number {k}" for k in range(30)]
MANY = np.random.default_rng(1).dirichlet(np.full(30, 0.2)).tolist()
XS = np.linspace(30, 60, 50)


def confused(K):
    rng = np.random.default_rng(K)
    return (np.diag(rng.integers(5, 900, K)) + (rng.random((K, K)) < 0.1) * rng.integers(0, 9, (K, K))).tolist()


def lines(K):
    P = np.exp(-0.5 * ((XS[:, None] - np.linspace(25, 65, K)) / 4) ** 2) + 1e-3
    P /= P.sum(axis=1, keepdims=True)
    return [
        {"name": f"class {k}", "y": p.tolist(), "lower": (0.8 * p).tolist(), "upper": (0.2 + 0.8 * p).tolist()}
        for k, p in enumerate(P.T)
    ]


CASES = {
    "three classes": ("probabilityBars", {"classes": NAMES, "proba": [0.9, 0.1 - 1e-9, 1e-9]}),
    "intervals": (
        "probabilityBars",
        {"classes": NAMES, "proba": [0.9, 0.1, 0], "lower": [0.8, None, 0], "upper": [1, None, 1e-5]},
    ),
    "by name": ("probabilityBars", {"classes": [True, False], "proba": {"true": 0.25, "false": 0.75}}),
    "thirty classes": ("probabilityBars", {"classes": LONG, "proba": MANY, "lower": [0] * 30, "upper": [1] * 30}),
    "one class": ("probabilityBars", {"classes": ["only"], "proba": [1]}),
    "no probability": ("probabilityBars", {"classes": ["a", "b"], "proba": [None, None]}),
    "counts": ("bars", {"labels": NAMES, "values": [12345, 0, 7], "title": "Rows", "valueTitle": "rows"}),
    "coefficients": ("bars", {"labels": LONG, "values": [(-1) ** k * k**3 for k in range(30)], "title": "C"}),
    "nothing": ("bars", {"labels": ["a"], "values": [0], "title": "Nothing"}),
    "missing": ("bars", {"labels": ["a", "b"], "values": [None, 3e-9], "title": "Missing"}),
    "one point": ("intervals", {"labels": ["a"], "mean": [1e9], "lower": [None], "upper": [None], "title": "I"}),
    "points": (
        "intervals",
        {"labels": NAMES, "mean": [1, -2, 0], "lower": [0.5, -9, None], "upper": [2, 1, None], "title": "I"},
    ),
    "lines": ("curve", {"x": XS.tolist(), "series": lines(3), "title": "C", "xTitle": "bill (mm)", "at": 44.4}),
    "thirty lines": ("curve", {"x": XS.tolist(), "series": lines(30), "title": "C", "xTitle": "bill", "at": 99}),
    "levels": (
        "curve",
        {
            "x": [*NAMES, *LONG[:9]],
            "series": [{"name": n, "y": [0.5] * 12} for n in LONG[:8]],
            "title": "C",
            "at": "Gentoo",
        },
    ),
    "one place": (
        "curve",
        {"x": [5], "series": [{"name": "a", "y": [0.5], "lower": [0.4], "upper": [0.6]}], "title": "C"},
    ),
    "gaps": ("curve", {"x": [1, 2, 3], "series": [{"name": "a", "y": [None, 12, None]}], "title": "C", "at": 1}),
    "bins": (
        "reliability",
        {"probability": [0.2, 0.9], "frequency": [0.1, 1], "lower": [0, 0.8], "upper": [0.3, 1], "rows": [10, 1000]},
    ),
    "one bin": ("reliability", {"probability": [0.7], "frequency": [1], "lower": [None], "upper": [None], "rows": [1]}),
    "no bin": ("reliability", {"probability": [], "frequency": [], "lower": [], "upper": [], "rows": []}),
    "confusion": ("confusion", {"labels": NAMES, "counts": [[40, 3, 0], [1.5, 20, 1e-7], [0, 0, 0]]}),
    "confusion of one": ("confusion", {"labels": LONG[:1], "counts": [[7]]}),
    "confusion of thirty": ("confusion", {"labels": LONG, "counts": confused(30)}),
    "confusion of a hundred": ("confusion", {"labels": [f"class {k}" for k in range(100)], "counts": confused(100)}),
}
OUTSIDE = """() => { // parts of the drawing that reach beyond it
  const svg = document.querySelector(".chart svg"), all = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text, rect:not(.here), circle, line, path")].filter((part) => {
    const { left, right, top, bottom } = part.getBoundingClientRect();
    return left < all.left - 1.5 || right > all.right + 6 || top < all.top - 6 || bottom > all.bottom + 1.5;
  }).map((part) => part.outerHTML); }"""
TOUCHING = """(kind) => { // texts that lie on each other
  const boxes = [...document.querySelectorAll(kind)].map((text) => [text.textContent, text.getBoundingClientRect()]);
  const touch = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
  return boxes.flatMap(([text, a], i) =>
    boxes.slice(0, i).filter(([, b]) => touch(a, b)).map(([other]) => [text, other]));
}"""
LAID_OUT = """() => Number(document.querySelector(".chart svg").getAttribute("width"))
  === Math.min(Math.floor(document.querySelector(".ruler").getBoundingClientRect().width),
    document.querySelector(".reliability") ? 440 : Infinity)"""


@pytest.mark.parametrize("width", [1280, 390, 250])
def test_charts_are_drawn_within_their_place(opened, width):
    page, wrong = opened(width=width), {}
    for case, call in CASES.items():
        page.evaluate("([name, given]) => add(name, given)", call)
        page.wait_for_function(LAID_OUT)
        svg = page.locator(".chart svg").evaluate("(svg) => svg.outerHTML")
        found = [word for word in ("NaN", "undefined", "Infinity", "null") if word in svg]
        found += page.evaluate(OUTSIDE)
        for kind in ("tick", "value", "label:not([transform])", "in-cell"):
            found += page.evaluate(TOUCHING, f".chart text.{kind}")
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found += ["the page scrolls sideways"]
        if found:
            wrong[case] = found
    assert wrong == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_have_no_barriers(opened, barriers, scheme):
    page = opened(scheme=scheme)
    cases = [case for case in CASES.values() if len(case[1].get("labels", [])) < 100]
    page.evaluate("(cases) => here.replaceChildren(...cases.map(([name, given]) => charts[name](given)))", cases)
    page.locator(".chart").first.focus()
    page.keyboard.press("ArrowDown")
    assert barriers(page) == []


@pytest.mark.quick
def test_a_table_has_the_numbers(opened):
    page = opened()
    page.evaluate("([name, given]) => add(name, given)", CASES["intervals"])
    table = page.locator(".unseen table")
    assert table.locator("tr").all_text_contents() == [
        "classprobabilityfromto",
        "Adelie0.9000.8001.000",
        "Chinstrap0.100––",
        "Gentoo0.0000.0001×10⁻⁵",
    ]
    page.evaluate("([name, given]) => add(name, given)", CASES["confusion"])
    assert table.locator("td").all_text_contents() == ["40", "3", "0", "1.5", "20", "1×10⁻⁷", "0", "0", "0"]


def tip(page):
    inside = page.locator(".tip")
    return None if inside.is_hidden() else inside.locator("strong").inner_text()


def test_keys_go_from_mark_to_mark(opened):
    page = opened()
    page.evaluate("([name, given]) => add(name, given)", CASES["three classes"])
    page.keyboard.press("Tab")
    assert tip(page) is None
    visited = []
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "Home", "End"):
        page.keyboard.press(key)
        visited.append(tip(page))
    assert visited == ["Adelie", "Chinstrap", "Gentoo", "Gentoo", "Chinstrap", "Adelie", "Gentoo"]
    assert page.locator("[role=status]").text_content() == "Gentoo, probability 1×10⁻⁹"
    page.keyboard.press("Escape")
    assert tip(page) is None
    page.keyboard.press("ArrowLeft")
    assert tip(page) == "Adelie"
    page.locator("h1").click()
    assert tip(page) is None


def test_keys_go_from_cell_to_cell(opened):
    page = opened()
    counts = [[9, 1, 0], [2, 8, 3], [0, 0, 7]]
    page.evaluate("([name, given]) => add(name, given)", ["confusion", {"labels": NAMES, "counts": counts}])
    page.keyboard.press("Tab")
    visited = []
    for key in ("Home", "Right", "Down", "Down", "Right", "Down", "Down", "Up", "Left"):
        page.keyboard.press(key if key == "Home" else f"Arrow{key}")
        visited.append(tip(page))
    a, c, g = NAMES
    assert visited == [a, f"{a}, held for {c}", c, g, g, g, g, f"{c}, held for {g}", c]


def test_the_pointer_tells_the_nearest_mark(opened):
    page = opened()
    page.evaluate("([name, given]) => add(name, given)", CASES["lines"])
    box = page.locator(".chart svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    name = tip(page)
    assert name.startswith("bill (mm) ")
    x = float(name.removeprefix("bill (mm) "))
    shown = dict(zip(page.locator(".tip dt").all_inner_texts(), page.locator(".tip dd").all_inner_texts(), strict=True))
    at = int(np.abs(XS - x).argmin())
    assert shown == {line["name"]: f"{line['y'][at]:.3f}" for line in lines(3) if line["y"][at] >= 5e-4} | {
        name: text for name, text in shown.items() if "10" in text
    }
    page.mouse.move(1, 1)
    assert tip(page) is None


def test_a_value_is_picked_on_a_curve(opened):
    page = opened()
    page.evaluate(
        """(given) => { window.picked = []; add("curve", { ...given, pick: (x) => picked.push(x) }); }""",
        {**CASES["lines"][1], "at": XS[20]},
    )
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # no mark yet: nothing is picked
    for key in ("ArrowRight", "ArrowRight", "Enter", "Home", "Enter"):  # from the present value
        page.keyboard.press(key)
    assert page.evaluate("picked") == [XS[21], XS[0]]
    box = page.locator(".chart svg").bounding_box()
    page.locator(".chart svg").click(position={"x": box["width"] / 2, "y": box["height"] / 2})
    at = page.evaluate("picked.at(-1)")
    assert tip(page) == f"bill (mm) {page.evaluate('(x) => elements.number(x)', at)}"
    before = page.evaluate("picked.length")
    page.mouse.move(box["x"] + box["width"] / 2 + 40, box["y"] + box["height"] / 2)
    assert page.evaluate("picked.length") == before  # pointing alone picks nothing
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 80, box["y"] + box["height"] / 2)
    page.mouse.up()
    assert page.evaluate("picked.at(-1)") > at
    page.evaluate("([name, given]) => add(name, given)", CASES["lines"])
    assert "Enter" not in page.locator(".chart").get_attribute("aria-label")


def test_one_bar_stands_out(opened):
    page = opened()
    given = {"labels": NAMES, "values": [3, 9, 1], "title": "V"}
    page.evaluate("(given) => add('bars', given)", {**given, "best": 1, "within": [18]})
    page.wait_for_function(LAID_OUT)
    kinds = page.locator(".chart .bar").evaluate_all("(bars) => bars.map((bar) => bar.classList.contains('best'))")
    assert kinds == [False, True, False]
    narrow = page.locator(".chart .bar.best").bounding_box()["width"]
    page.evaluate("(given) => add('bars', given)", given)
    page.wait_for_function(LAID_OUT)
    assert page.locator(".chart .bar.best").count() == 3
    wide = page.locator(".chart .bar.best").nth(1).bounding_box()["width"]
    assert wide == pytest.approx(2 * narrow, rel=0.01)  # the axis reaches to 18, or to 9


def test_a_chart_is_drawn_again_when_its_place_changes(opened):
    page = opened(width=900)
    page.evaluate("([name, given]) => add(name, given)", CASES["thirty classes"])
    seen = []
    for width in (900, 400):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function(LAID_OUT)
        label = page.locator(".chart .label").first
        seen.append((label.text_content(), label.evaluate("(label) => getComputedStyle(label).fontSize")))
    (wide, size), (narrow, same) = seen
    assert size == same == "13px"  # text keeps its size
    assert wide != narrow
    assert "…" in narrow


def test_numbers_as_text(opened):
    texts = {
        "number(1234.5678)": "1,235",
        "number(-0.25)": "−0.25",
        "number(-1.234e-7)": "−1.23×10⁻⁷",
        "number(1e9)": "1×10⁹",
        "number(NaN)": "–",
        "number(-Infinity)": "−∞",
        "probability(0.12345)": "0.123",
        "probability(3e-7)": "3×10⁻⁷",
        "probability(0.99996)": ">0.999",
        "probability(1)": "1.000",
        "percent(0.125)": "12.5\u00a0%",
        "count(1234567)": "1,234,567",
        "shortened('a\\nb')": "a b",
        "shortened('0123456789', 7)": "0123…89",
    }
    page = opened()
    assert {call: page.evaluate(f"elements.{call}") for call in texts} == texts


# --- the table of utilities -------------------------------------------------------------------------------------------

EYE = {"states": NAMES, "actions": NAMES, "matrix": np.eye(3).tolist()}


def started(opened, given=EYE, **options):
    page = opened(**options)
    page.evaluate("(given) => start(given)", given)
    return page


def cell(page, k, a):
    return page.locator(f"input[data-state='{k}'][data-action='{a}']")


def name(page, a):
    return page.locator("input.name").nth(a)


def last(page):
    return page.evaluate("told.at(-1)")


def focused(page):
    return page.evaluate("[document.activeElement.dataset.state, document.activeElement.dataset.action].map(Number)")


def paste(page, text):
    page.evaluate(
        """(text) => { const clipboardData = new DataTransfer(); clipboardData.setData("text/plain", text);
        const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
        document.activeElement.dispatchEvent(event); }""",
        text,
    )


def test_it_tells_what_is_valid_only(opened):
    page = started(opened)
    assert last(page) == {**EYE, "matrix": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}
    cell(page, 0, 1).fill("-2.5")
    assert last(page)["matrix"][0] == [1, -2.5, 0]
    n = page.evaluate("told.length")
    cell(page, 0, 1).fill("2..5")
    assert page.evaluate("told.length") == n
    assert page.evaluate("utility.value()") is None
    assert cell(page, 0, 1).get_attribute("aria-invalid") == "true"
    described = cell(page, 0, 1).get_attribute("aria-describedby")
    assert page.locator(f"#{described}").inner_text().startswith("One cell is not a number")
    cell(page, 0, 1).fill("4")
    said = page.evaluate("said")
    assert [bool(text) for text in said] == [True, False]
    assert last(page)["matrix"][0] == [1, 4, 0]


@pytest.mark.quick
def test_undo_and_redo(opened):
    page = started(opened)
    undo, redo = page.get_by_role("button", name="Undo"), page.get_by_role("button", name="Redo")
    assert undo.is_disabled()
    assert redo.is_disabled()
    states = [last(page)]
    cell(page, 1, 1).focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("12.5")  # one step, though four keys
    states.append(last(page))
    name(page, 2).fill("leave")
    page.keyboard.press("Enter")
    states.append(last(page))
    page.get_by_role("button", name="Remove action Adelie").click()
    states.append(last(page))
    page.get_by_role("button", name="Add action").click()
    states.append(last(page))
    assert [state["actions"] for state in states[1:]] == [
        NAMES,
        ["Adelie", "Chinstrap", "leave"],
        ["Chinstrap", "leave"],
        ["Chinstrap", "leave", "reject"],
    ]
    for state in reversed(states[:-1]):
        undo.click()
        assert last(page) == state
    assert undo.is_disabled()
    for state in states[1:]:
        redo.click()
        assert last(page) == state
    cell(page, 0, 0).focus()
    for state in reversed(states[:-1]):
        page.keyboard.press("Control+z")
        assert last(page) == state
    assert focused(page) == [0, 0]
    prevented = """() => !document.activeElement.dispatchEvent(
      new KeyboardEvent("keydown", { key: "z", ctrlKey: true, bubbles: true, cancelable: true }))"""
    assert page.evaluate(prevented)  # the browser's own undo does nothing besides
    page.keyboard.press("Control+Shift+z")
    assert last(page) == states[1]
    page.keyboard.press("Control+y")
    assert last(page) == states[2]
    cell(page, 0, 0).fill("7")  # what could have been done again is gone
    assert redo.is_disabled()


def test_names_of_actions(opened):
    page = started(opened)
    name(page, 0).fill("  treat ")
    page.keyboard.press("Tab")
    assert last(page)["actions"] == ["treat", "Chinstrap", "Gentoo"]
    assert name(page, 0).input_value() == "treat"
    assert page.get_by_label("Utility of treat when the truth is Gentoo", exact=True).count() == 1
    assert page.get_by_role("button", name="Remove action treat").count() == 1
    for wrong, why in (("Gentoo", "already"), ("", "needs a name")):
        name(page, 0).fill(wrong)
        page.keyboard.press("Tab")
        assert why in page.get_by_role("alert").inner_text()
        assert name(page, 0).get_attribute("aria-invalid") == "true"
        assert last(page)["actions"][0] == "treat"
    name(page, 0).focus()
    page.keyboard.press("Escape")
    assert name(page, 0).input_value() == "treat"
    page.keyboard.press("Tab")
    name(page, 1).fill("wait")
    page.keyboard.press("Enter")
    assert last(page)["actions"] == ["treat", "wait", "Gentoo"]
    assert page.get_by_role("alert").inner_text() == ""


def test_keys_as_in_a_spreadsheet(opened):
    page = started(opened)
    cell(page, 0, 0).focus()
    page.keyboard.press("Control+a")
    visited = []
    for key in (
        "ArrowRight",
        "ArrowRight",
        "ArrowRight",
        "ArrowDown",
        "Enter",
        "Enter",
        "Shift+Enter",
        "ArrowLeft",
        "ArrowUp",
    ):
        page.keyboard.press(key)
        visited.append(focused(page))
    assert visited == [[0, 1], [0, 2], [0, 2], [1, 2], [2, 2], [2, 2], [1, 2], [1, 1], [0, 1]]
    page.keyboard.type("123")
    page.keyboard.press("ArrowLeft")  # within the text first
    assert focused(page) == [0, 1]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert focused(page) == [0, 2]
    page.keyboard.type("9")
    page.keyboard.press("Escape")  # as it was
    assert last(page)["matrix"][0] == [1, 123, 0]
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.ariaLabel") == "Name of action Gentoo"
    page.keyboard.press("ArrowDown")
    assert focused(page) == [0, 2]


def test_a_block_is_pasted(opened):
    page = started(opened)
    before = last(page)
    cell(page, 1, 1).focus()
    paste(page, "1.5\t\u22122\r\n3,25\t1e2\r\n")
    assert last(page)["matrix"] == [[1, 0, 0], [0, 1.5, -2], [0, 3.25, 100]]
    assert page.locator("[role=status]").text_content() == "4 cells were pasted"
    page.keyboard.press("Control+z")
    assert last(page) == before
    cell(page, 2, 2).focus()
    paste(page, "5\t6\n7\t8")
    assert last(page)["matrix"][2] == [0, 0, 5]
    assert page.locator("[role=status]").text_content() == "1 cells were pasted, 3 had no place"
    cell(page, 0, 0).focus()
    paste(page, "1,000\t2")  # a thousand, or one?
    assert cell(page, 0, 0).get_attribute("aria-invalid") == "true"
    name(page, 0).focus()
    paste(page, "treat\twait\n1\t2\n3\t4\n5\t6")
    assert last(page) == {
        "states": NAMES,
        "actions": ["treat", "wait", "Gentoo"],
        "matrix": [[1, 2, 0], [3, 4, 0], [5, 6, 5]],
    }


@pytest.mark.quick
@pytest.mark.parametrize("mark", ["\t", ",", ";"])
def test_a_whole_table_is_pasted(opened, mark):
    page = started(opened)
    cell(page, 1, 1).focus()
    rows = [["truth", "go", 'say "no"'], ["Gentoo", "1", "2"], ["Adelie", "3", "4"], ["Chinstrap", "5", "6"]]
    rows[0][2] = '"say ""no"""'
    paste(page, "\n".join(mark.join(row) for row in rows))
    assert last(page) == {"states": NAMES, "actions": ["go", 'say "no"'], "matrix": [[3, 4], [5, 6], [1, 2]]}


def test_the_table_is_its_own_csv(opened):
    page = started(opened)
    cell(page, 0, 0).fill("0.1")
    text = page.evaluate("utility.csv()")
    was = last(page)
    page.evaluate("(given) => utility.set(given)", {"actions": ["x"], "matrix": [[0], [0], [0]]})
    assert last(page)["actions"] == ["x"]
    cell(page, 0, 0).focus()
    paste(page, text)
    assert last(page) == was


@pytest.mark.parametrize("actions", [["a;b;c;d"], ["a|b|c", "x;y"], ["a,b,c", 'say "no"'], ["tab\tbed\tand\tmore"]])
def test_csv_of_names_with_marks(csv_engine, tmp_path, actions):
    states, matrix = ["one,two", "three;four;five"], [[1.5] * len(actions), [-2] * len(actions)]
    text = csv_engine.evaluate("(given) => utilityCsv(given)", {"states": states, "actions": actions, "matrix": matrix})
    (tmp_path / "utility.csv").write_text(text, encoding="utf-8")
    utility = Utility.from_csv(tmp_path / "utility.csv")
    assert utility.states.tolist() == states
    assert utility.actions.tolist() == actions
    np.testing.assert_array_equal(utility.matrix, matrix)


@given(
    names=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=9).filter(
            lambda name: name == name.strip() and name.strip("\ufeff")
        ),
        min_size=2,
        max_size=4,
        unique=True,
    ),
    numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4),
)
def test_csv_of_any_names(csv_engine, tmp_path_factory, names, numbers):
    actions = [f"{name};|,;" for name in names] if len(names) > 3 else names
    matrix = [[numbers[(k + a) % 4] for a in range(len(actions))] for k in range(len(names))]
    text = csv_engine.evaluate("(given) => utilityCsv(given)", {"states": names, "actions": actions, "matrix": matrix})
    path = tmp_path_factory.mktemp("csv") / "utility.csv"
    path.write_bytes(text.encode())
    found = Utility.from_csv(path)
    assert found.actions.tolist() == [action.strip() for action in actions]
    np.testing.assert_array_equal(found.ordered(np.array(names, dtype=object)).matrix, matrix)


@pytest.fixture(scope="module")
def csv_engine(browser):
    page = browser.new_page()
    text = re.sub(r"^export ", "", report_page._read("utility_table.js"), flags=re.M)
    text = re.sub(r"^import [^;]*;", "", text, flags=re.M)
    page.evaluate(f"{text}; Object.assign(window, {{ utilityCsv }})")
    yield page
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_table_has_no_barriers(opened, barriers, scheme):
    page = started(opened, scheme=scheme)
    cell(page, 0, 0).fill("wrong")
    assert barriers(page) == []
    reached = page.locator("input, button").evaluate_all("""(all) => all.filter((one) => !one.disabled && !one.hidden)
        .map((one) => { one.focus(); return getComputedStyle(one).outlineStyle; })""")
    assert set(reached) == {"solid"}
