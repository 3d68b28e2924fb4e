"""The page in a browser: every number that it shows is the library's, and everything is done by keys, too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from tests.serve.conftest import Process, serving

import posteriori as po
from posteriori.decision.scores import realised_utility

pytestmark = pytest.mark.xdist_group("browser")  # one process, one browser

CLASSES = ["Adelie", "Chinstrap", "Gentoo"]
TYPICAL = {
    "island": "Biscoe", "bill_length_mm": 43.9, "bill_depth_mm": 17.15, "flipper_length_mm": 200.9,
    "body_mass_g": 4200.0, "sex": "female", "year": 2008,
}  # fmt: skip
COLUMNS = list(TYPICAL)
COSTS = po.Utility([[1.0, -20.0, 0.2], [-2.0, 3.0, 0.2], [0.0, -1.0, 0.2]], CLASSES, ["keep", "release", "ask"])
REFUSED = "Failed to load resource: the server responded with a status of 4"


@pytest.fixture(scope="module")
def numbers_file(numbers_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "numbers.model"
    po.save(numbers_model, path)
    return path


@pytest.fixture(scope="module")
def server(model_file: Path, numbers_file: Path) -> Iterator[Process]:
    with serving(f"penguins={model_file}", f"numbers={numbers_file}", timeout=900) as served:
        yield served


@pytest.fixture
def opened(new_page: Callable[..., Any], server: Process) -> Iterator[Callable[..., Any]]:
    """Opens the page at a state, and tells at the end that nothing was asked of another server."""
    asked: list[str] = []

    def open_page(
        state: dict[str, Any] | None = None, at: Process = server, *, locked: bool = False, **options: Any
    ) -> Any:
        page = new_page(**options)
        page.on("request", lambda request: asked.append(request.url) if not is_own(request.url, at.url) else None)
        page.waiting = set()
        page.on("request", lambda request: page.waiting.add(request))
        for ended in ("requestfinished", "requestfailed"):
            page.on(ended, lambda request: page.waiting.discard(request))
        given = {name: one if isinstance(one, str) else json.dumps(one) for name, one in (state or {}).items()}
        page.goto(f"{at.url}/#" + "&".join(f"{name}={quote(value)}" for name, value in given.items()))
        if not locked:
            page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    assert asked == []


def is_own(url: str, own: str) -> bool:
    return url.startswith((f"{own}/", "blob:", "data:"))


def row_state(**more: Any) -> dict[str, Any]:
    return {"model": "penguins", "row": TYPICAL, **more}


def utility_state(utility: po.Utility) -> dict[str, Any]:
    return {"actions": utility.actions.tolist(), "matrix": utility.matrix.tolist()}


def settled(page: Any) -> None:
    """Wait until all that was asked is answered and drawn."""
    quiet = 0
    while quiet < 2:  # longer than the page waits after a key, and once more for what an answer leads to
        page.wait_for_timeout(160)
        quiet = 0 if page.waiting else quiet + 1


def state_of(page: Any) -> dict[str, Any]:
    given = {name: values[0] for name, values in parse_qs(urlsplit(page.url).fragment).items()}
    return {name: json.loads(value) if value[0] in "{[0123456789" else value for name, value in given.items()}


def field(page: Any, column: str) -> Any:
    return page.locator("#row-form").get_by_label(column, exact=True)


def cell(page: Any, state: str, action: str) -> Any:
    return page.get_by_label(f"Utility of {action} when the truth is {state}", exact=True)


def value(page: Any, key: str) -> float:
    return float(page.locator(f"#{key}").get_attribute("value"))


def numbers_in(page: Any, chart: str) -> dict[str, list[float]]:
    """The table that a chart has for screen readers, by the first cells of its rows."""
    rows = page.locator(f"{chart} .unseen tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return {first: [number(text) for text in others] for first, *others in rows}


RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")


WORDS = {">0.999": 0.99975, "<0.001": 0.00025, "–": float("nan")}


def number(text: str) -> float:
    """A number as the page writes it: 0.123, >0.999, 1.2×10⁻⁵, 1,234."""
    if text in WORDS:
        return WORDS[text]
    return float(text.translate(RAISED).replace("×10", "e").replace(",", "").replace("%", ""))


def paste(page: Any, text: str, into: str = "body") -> None:
    """Paste as browsers do, from the clipboard into what has the focus."""
    page.evaluate(
        """([text, into]) => { const clipboardData = new DataTransfer(); clipboardData.setData("text/plain", text);
        const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
        document.querySelector(into).dispatchEvent(event); }""",
        [text, into],
    )


def drop(page: Any, name: str, content: str) -> None:
    """Drag a file over the page and let it go."""
    transfer = page.evaluate_handle(
        """([name, content]) => { const all = new DataTransfer();
        all.items.add(new File([content], name)); return all; }""",
        [name, content],
    )
    page.dispatch_event("main", "dragover", {"dataTransfer": transfer})
    assert page.get_by_text("Drop the rows here").is_visible()
    page.dispatch_event("main", "drop", {"dataTransfer": transfer})


def read_rows(page: Any, text: str) -> None:
    page.locator("#pasted").fill(text)
    page.get_by_role("button", name="Read these rows").click()
    page.locator("#rows table, #intake-trouble .trouble").first.wait_for()
    assert page.locator("#intake-trouble").inner_text() == ""
    settled(page)


@pytest.fixture(scope="module")
def few(penguins: pd.DataFrame) -> pd.DataFrame:
    """120 rows in another order, some of them without a label."""
    rows = penguins.sample(120, random_state=1).reset_index(drop=True)
    rows.loc[::10, "species"] = None
    return rows


def table_state(page: Any) -> list[list[str]]:
    """The rows that are shown, as text."""
    return page.locator("#rows tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.firstChild?.textContent ?? ''))"
    )


def shown_rows(page: Any) -> list[int]:
    return [int(row[0].replace(",", "")) for row in table_state(page)]


def column_of(page: Any, title: str) -> list[str]:
    heads = page.locator("#rows thead th").all_inner_texts()
    at = next(i for i, head in enumerate(heads) if re.sub(r" [↑↓]$", "", head.strip()) == title)
    return [row[at] for row in table_state(page)]


# --- one row ----------------------------------------------------------------------------------------------------------


def check_row(page: Any, model: Any, row: dict[str, Any], utility: po.Utility) -> None:
    """What is shown of a row is what the library says."""
    table = pd.DataFrame([row])[COLUMNS]
    P = model.predict_proba(table)
    lower, upper = model[-1].predict_interval(model[:-1].transform(table), 0.95)
    shown = numbers_in(page, "#probabilities .probabilities")
    assert list(shown) == CLASSES
    expected = np.stack([P[0], lower[0], upper[0]], axis=1)
    np.testing.assert_allclose([shown[name] for name in CLASSES], expected, atol=6e-4)
    _, aleatoric, epistemic = model[-1].uncertainty(model[:-1].transform(table))
    parts = numbers_in(page, "#probabilities .bars")
    np.testing.assert_allclose([parts["aleatoric"][0], parts["epistemic"][0]], [aleatoric[0], epistemic[0]], rtol=1e-3)
    decisions = po.decide(P, utility)
    assert page.locator("#decisions .lead strong").first.inner_text() == decisions.actions[0]
    if len(utility.actions) > 1:
        assert value(page, "margin") == pytest.approx(decisions.margin[0], rel=1e-9)
    assert value(page, "expected") == pytest.approx(decisions.expected_utility[0].max(), rel=1e-9)
    assert value(page, "information") == pytest.approx(decisions.value_of_information[0], rel=1e-9)
    values = numbers_in(page, "#decisions .bars")
    assert list(values) == utility.actions.tolist()
    shown_values = [values[name][0] for name in utility.actions]
    np.testing.assert_allclose(shown_values, decisions.expected_utility[0], rtol=5e-3, atol=1e-9)


@pytest.mark.quick
def test_one_row(opened: Any, model: Any) -> None:
    """From the empty page to a decision, by the pointer: the first guard of the page."""
    page = opened({"model": "penguins"})
    assert page.title() == "penguins: posteriori"
    assert page.get_by_role("heading", level=1).inner_text() == "Which species?"
    page.get_by_role("button", name="Begin with a typical row").click()
    page.wait_for_selector("#curve .chart")
    check_row(page, model, TYPICAL, po.Utility.zero_one(CLASSES))
    field(page, "bill_length_mm").fill("36,5")
    field(page, "island").select_option("Torgersen")
    field(page, "sex").select_option("")  # missing
    settled(page)
    row = TYPICAL | {"bill_length_mm": 36.5, "island": "Torgersen", "sex": None}
    assert state_of(page)["row"] == row
    check_row(page, model, row, po.Utility.zero_one(CLASSES))
    cell(page, "Chinstrap", "Adelie").fill("-100")
    utility = po.Utility([[1, 0, 0], [-100, 1, 0], [0, 0, 1]], CLASSES, CLASSES)
    check_row(page, model, row, utility)
    page.get_by_role("button", name="Undo").click()
    check_row(page, model, row, po.Utility.zero_one(CLASSES))


@pytest.mark.slow
def test_the_curve_is_that_of_the_model_and_sets_the_value(opened: Any, model: Any) -> None:
    page = opened(row_state(curve="flipper_length_mm"))
    page.wait_for_selector("#curve .chart")
    shown = numbers_in(page, "#curve .curve")
    xs = np.array([number(x) for x in shown])
    assert (xs.min(), xs.max(), 200.9 in xs) == (172.0, 231.0, True)
    rows = pd.DataFrame([TYPICAL | {"flipper_length_mm": x} for x in xs])[COLUMNS]
    np.testing.assert_allclose(list(shown.values()), model.predict_proba(rows), atol=3e-3)  # x has four digits
    box = page.locator("#curve svg").bounding_box()
    page.locator("#curve svg").click(position={"x": box["width"] * 0.2, "y": box["height"] / 2})
    settled(page)
    chosen = state_of(page)["row"]["flipper_length_mm"]
    assert 172 <= chosen < 190
    assert float(field(page, "flipper_length_mm").input_value()) == chosen
    check_row(page, model, TYPICAL | {"flipper_length_mm": chosen}, po.Utility.zero_one(CLASSES))
    page.locator("#curve .chart").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    settled(page)
    further = state_of(page)["row"]["flipper_length_mm"]
    assert chosen < further < chosen + 3
    assert page.evaluate("document.activeElement.classList.contains('curve')")  # and so on
    page.locator("#curve-column").select_option("island")
    settled(page)
    islands = numbers_in(page, "#curve .curve")
    assert list(islands) == ["Biscoe", "Dream", "Torgersen"]
    rows = pd.DataFrame([TYPICAL | {"flipper_length_mm": further, "island": one} for one in islands])[COLUMNS]
    np.testing.assert_allclose(list(islands.values()), model.predict_proba(rows), atol=6e-4)


@pytest.mark.slow
def test_dragging_along_the_curve_moves_everything(opened: Any) -> None:
    page = opened(row_state())
    page.wait_for_selector("#curve .chart")
    settled(page)
    page.locator("#curve svg").scroll_into_view_if_needed()
    box = page.locator("#curve svg").bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 100)
    page.mouse.down()
    seen = []
    for share in (0.35, 0.45, 0.55, 0.65):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 100)
        settled(page)
        seen.append((float(field(page, "bill_length_mm").input_value()), page.locator("#verdict").inner_text()))
    page.mouse.up()
    values = [x for x, _ in seen]
    assert values == sorted(set(values))
    assert seen[0][1] != seen[-1][1]


@pytest.mark.slow
def test_costs_are_argued_about(opened: Any, model: Any) -> None:
    """Actions added, renamed, removed; what flips; undone and done again."""
    page = opened(row_state(row=TYPICAL | {"bill_length_mm": 41.5}))
    row = TYPICAL | {"bill_length_mm": 41.5}
    zero_one = po.Utility.zero_one(CLASSES)
    settled(page)
    check_row(page, model, row, zero_one)
    assert page.locator(".flip").count() == 0
    page.get_by_label("New action").fill("ask")
    page.get_by_label("worth, whatever the truth").fill("0.9")
    page.get_by_role("button", name="Add action").click()
    wider = zero_one.with_reject(0.9, "ask")
    check_row(page, model, row, wider)
    before = po.decide(model.predict_proba(pd.DataFrame([row])[COLUMNS]), zero_one).actions[0]
    assert page.locator(".flip").inner_text() == f"By the utilities before it was {before}."
    page.get_by_role("button", name="Compare with these from now on").click()
    assert page.locator(".flip").count() == 0
    page.get_by_label("Name of action ask", exact=True).fill("ask a colleague")
    page.keyboard.press("Enter")
    check_row(page, model, row, po.Utility(wider.matrix, CLASSES, [*CLASSES, "ask a colleague"]))
    page.get_by_role("button", name="Remove action Adelie").click()
    renamed = po.Utility(wider.matrix[:, 1:], CLASSES, [*CLASSES[1:], "ask a colleague"])
    check_row(page, model, row, renamed)
    for _ in range(3):
        page.get_by_role("button", name="Undo").click()
    check_row(page, model, row, zero_one)
    for _ in range(3):
        page.get_by_role("button", name="Redo").click()
    check_row(page, model, row, renamed)
    page.get_by_role("button", name="Start again").click()
    check_row(page, model, row, zero_one)


@pytest.mark.slow
def test_utilities_are_taken_along(opened: Any, model_file: Path, few: pd.DataFrame, tmp_path: Path) -> None:
    """The CSV file and the command that the page shows decide as the page does."""
    from typer.testing import CliRunner

    from posteriori.cli import app as command_line

    page = opened({"model": "penguins", "view": "rows", "utility": utility_state(COSTS)})
    read_rows(page, few.to_csv(index=False))
    page.get_by_text("Take these utilities along").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as utility.csv").click()
    download.value.save_as(tmp_path / "utility.csv")
    np.testing.assert_array_equal(po.Utility.from_csv(tmp_path / "utility.csv").ordered(CLASSES).matrix, COSTS.matrix)
    few.to_csv(tmp_path / "rows.csv", index=False)
    command = page.get_by_label("The same decisions on the command line").input_value()
    places = {"penguins.model": model_file, "rows.csv": tmp_path / "rows.csv", "utility.csv": tmp_path / "utility.csv"}
    program, *words = (str(places.get(word, word)) for word in command.split())
    assert program == "posteriori"
    result = CliRunner().invoke(command_line, [*words, "--out", str(tmp_path / "out.csv")])
    assert result.exit_code == 0, result.output
    actions = pd.read_csv(tmp_path / "out.csv")["action"]
    assert column_of(page, "action") == actions[:50].tolist()


# --- many rows --------------------------------------------------------------------------------------------------------


def check_table(page: Any, model: Any, rows: pd.DataFrame, utility: po.Utility, against: po.Utility) -> None:
    """What is shown of a table is what the library says."""
    P = model.predict_proba(rows[COLUMNS])
    decisions, before = po.decide(P, utility), po.decide(P, against)
    counts = numbers_in(page, "#decisions .bars")
    assert [counts[name][0] for name in utility.actions] == [sum(decisions.actions == name) for name in utility.actions]
    assert value(page, "expected") == pytest.approx(decisions.expected_utility.max(axis=1).mean(), rel=1e-9)
    assert value(page, "information") == pytest.approx(decisions.value_of_information.mean(), rel=1e-9)
    assert value(page, "margin") == pytest.approx(np.median(decisions.margin), rel=1e-9)
    assert value(page, "flipped") == sum(decisions.actions != before.actions)
    classes = numbers_in(page, "#classes .bars")
    assert [classes[name][0] for name in CLASSES] == np.bincount(P.argmax(axis=1), minlength=3).tolist()
    shown = np.array(shown_rows(page)) - 1
    assert column_of(page, "most probable") == [CLASSES[k] for k in P[shown].argmax(axis=1)]
    assert column_of(page, "action") == decisions.actions[shown].tolist()
    for k, name in enumerate(CLASSES):
        np.testing.assert_allclose([number(p) for p in column_of(page, f"p({name})")], P[shown, k], atol=6e-4)
    written = [number(text.removeprefix("<")) for text in column_of(page, "margin")]
    np.testing.assert_allclose(written, decisions.margin[shown], atol=0.06)


def as_tsv(rows: pd.DataFrame) -> bytes:
    return rows.to_csv(index=False, sep="\t").encode()


WAYS = {
    "typed": lambda page, rows: read_rows(page, rows.to_csv(index=False)),
    "pasted from a spreadsheet": lambda page, rows: paste(page, rows.to_csv(index=False, sep="\t")),
    "pasted into the field": lambda page, rows: paste(page, rows.to_csv(index=False, sep=";"), "#pasted"),
    "dropped": lambda page, rows: drop(page, "rows.csv", rows.to_csv(index=False)),
    "chosen": lambda page, rows: page.locator("#file").set_input_files(
        [{"name": "rows.tsv", "mimeType": "text/tab-separated-values", "buffer": as_tsv(rows)}]
    ),
    "as parquet": lambda page, rows: page.locator("#file").set_input_files(
        [{"name": "rows.parquet", "mimeType": "application/octet-stream", "buffer": rows.to_parquet(index=False)}]
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_rows_come_in_many_ways(opened: Any, model: Any, few: pd.DataFrame, way: str) -> None:
    unlabelled = few[COLUMNS]
    page = opened({"model": "penguins", "view": "rows"})
    WAYS[way](page, unlabelled)
    page.wait_for_selector("#rows table")
    settled(page)
    assert "120 rows with 7 columns." in page.locator("#table-about").inner_text()
    zero_one = po.Utility.zero_one(CLASSES)
    check_table(page, model, unlabelled, zero_one, zero_one)
    assert page.locator("#scores-view").is_hidden()


@pytest.mark.slow
def test_decisions_on_a_table_follow_what_is_typed(opened: Any, model: Any, few: pd.DataFrame) -> None:
    page = opened({"model": "penguins", "view": "rows"})
    read_rows(page, few.to_csv(index=False))
    start = po.Utility.zero_one(CLASSES)
    check_table(page, model, few, start, start)
    cell(page, "Adelie", "Gentoo").fill("1.05")
    settled(page)
    changed = po.Utility([[1, 0, 1.05], [0, 1, 0], [0, 0, 1]], CLASSES, CLASSES)
    check_table(page, model, few, changed, start)
    assert value(page, "flipped") > 10
    page.get_by_role("button", name="Show the rows that flip").click()
    settled(page)
    P = model.predict_proba(few[COLUMNS])
    flips = np.flatnonzero(po.decide(P, changed).actions != po.decide(P, start).actions)
    assert shown_rows(page) == (flips[:50] + 1).tolist()
    assert set(column_of(page, "before")) == set(po.decide(P, start).actions[flips])
    page.get_by_role("button", name="Undo").click()
    settled(page)
    assert "No row fits" in page.locator("#where").inner_text()


@pytest.mark.slow
def test_labelled_rows_are_scored(opened: Any, model: Any, few: pd.DataFrame) -> None:
    page = opened({"model": "penguins", "view": "rows", "utility": utility_state(COSTS)})
    read_rows(page, few.to_csv(index=False))
    known = few[few["species"].notna()]
    assert f"says the class of {len(known)} of them" in page.locator("#table-about").inner_text()
    P, truth = model.predict_proba(known[COLUMNS]), known["species"].to_numpy()
    scores = po.evaluate(model, known, "species").scores
    codes = np.array([CLASSES.index(name) for name in truth])
    own = P[np.arange(len(P)), codes]
    assert value(page, "log_loss") == pytest.approx(-np.log(own).mean(), rel=1e-9)
    assert value(page, "accuracy") == pytest.approx((P.argmax(axis=1) == codes).mean(), rel=1e-9)
    assert value(page, "brier") == pytest.approx(((P - np.eye(3)[codes]) ** 2).sum(axis=1).mean(), rel=1e-9)
    for key in ("log_loss", "accuracy", "brier"):
        name = next(name for name in scores if name.startswith(key))
        texts = page.locator(f"dd:has(#{key}) .interval").inner_text().split(" to ")
        factor = 100 if key == "accuracy" else 1
        ends = [number(text) / factor for text in texts]
        np.testing.assert_allclose(ends, [scores[name].lower, scores[name].upper], rtol=1e-2, atol=6e-4)
    counts = np.zeros((3, 3))
    np.add.at(counts, (codes, P.argmax(axis=1)), 1)
    np.testing.assert_array_equal(list(numbers_in(page, "#scores .confusion").values()), counts)
    decisions = po.decide(P, COSTS)
    realised = realised_utility(truth, decisions.actions, COSTS)
    assert value(page, "realised") == pytest.approx(realised, rel=1e-9)
    assert value(page, "believed") == pytest.approx(decisions.expected_utility.max(axis=1).mean(), rel=1e-9)
    worth = numbers_in(page, "#scores .intervals")
    for action in COSTS.actions:
        assert worth[f"always {action}"][0] == pytest.approx(
            realised_utility(truth, [action] * len(truth), COSTS), rel=1e-3
        )
    best = np.asarray(COSTS.matrix).argmax(axis=1)
    probable = np.asarray(COSTS.matrix)[codes, best[P.argmax(axis=1)]].mean()
    assert worth["most probable class"][0] == pytest.approx(probable, rel=1e-3)
    assert worth["if the class were known"][0] == pytest.approx(
        np.asarray(COSTS.matrix).max(axis=1)[codes].mean(), rel=1e-3
    )
    low, high = worth["these utilities"][1:]
    assert low < realised < high
    bins = numbers_in(page, "#scores .reliability")
    assert sum(counts[-1] for counts in bins.values()) == len(known)


@pytest.mark.slow
def test_rows_are_sorted_filtered_and_turned(opened: Any, model: Any, few: pd.DataFrame) -> None:
    page = opened({"model": "penguins", "view": "rows", "utility": utility_state(COSTS)})
    read_rows(page, few.to_csv(index=False))
    P = model.predict_proba(few[COLUMNS])
    decisions = po.decide(P, COSTS)
    sort = lambda title: page.locator("#rows thead").get_by_role("button", name=title, exact=True)  # noqa: E731
    assert shown_rows(page) == list(range(1, 51))
    page.get_by_role("button", name="Next").click()
    settled(page)
    assert shown_rows(page) == list(range(51, 101))
    assert page.locator("#where").inner_text() == "Rows 51 to 100 of 120"
    page.get_by_role("button", name="Next").click()
    settled(page)
    assert shown_rows(page) == list(range(101, 121))
    assert page.get_by_role("button", name="Next").is_disabled()
    page.get_by_role("button", name="Previous").click()
    settled(page)
    for title, values in {"margin": decisions.margin, "p(Gentoo)": -P[:, 2]}.items():
        sort(title).click()
        settled(page)
        order = np.argsort(values, kind="stable")
        np.testing.assert_allclose(values[np.array(shown_rows(page)) - 1], values[order[:50]])
        assert page.evaluate("document.activeElement.textContent") == title  # the focus stays
    assert page.locator("#rows th[aria-sort]").get_attribute("aria-sort") == "descending"
    sort("p(Gentoo)").click()
    settled(page)
    np.testing.assert_allclose(P[np.array(shown_rows(page)) - 1, 2], np.sort(P[:, 2])[:50])
    sort("truth").click()  # the most surprising ones first
    settled(page)
    known = np.flatnonzero(few["species"].notna())
    own = P[known, [CLASSES.index(name) for name in few["species"][known]]]
    assert shown_rows(page)[0] == known[own.argmin()] + 1
    page.locator("#filters").get_by_label("Action").select_option("release")
    settled(page)
    assert page.locator("#where").inner_text().endswith(f"of {sum(decisions.actions == 'release')}")
    page.locator("#filters").get_by_label("Truth").select_option("Adelie")
    settled(page)
    both = (decisions.actions == "release") & (few["species"] == "Adelie")
    assert sorted(shown_rows(page)) == (np.flatnonzero(both) + 1).tolist()


@pytest.mark.slow
def test_a_row_of_a_table_is_opened_and_changed(opened: Any, model: Any, few: pd.DataFrame) -> None:
    page = opened({"model": "penguins", "view": "rows"})
    read_rows(page, few.to_csv(index=False))
    page.get_by_role("button", name="Row 7: look at it").click()
    settled(page)
    row = {name: None if pd.isna(one) else one for name, one in few[COLUMNS].iloc[6].items()}
    check_row(page, model, row, po.Utility.zero_one(CLASSES))
    page.go_back()
    settled(page)
    assert len(shown_rows(page)) == 50


@pytest.mark.slow
def test_a_table_is_downloaded_with_its_decisions(opened: Any, model: Any, few: pd.DataFrame) -> None:
    page = opened({"model": "penguins", "view": "rows", "utility": utility_state(COSTS)})
    read_rows(page, few.to_csv(index=False))
    with page.expect_download() as download:
        page.get_by_role("button", name="Download with decisions").click()
    found = pd.read_csv(download.value.path())
    decisions = po.decide(model.predict_proba(few[COLUMNS]), COSTS)
    assert found["action"].tolist() == decisions.actions.tolist()
    np.testing.assert_allclose(found["margin"], decisions.margin, rtol=1e-9)
    pd.testing.assert_frame_equal(found[COLUMNS], few[COLUMNS], check_dtype=False)


@pytest.mark.slow
def test_many_rows_do_not_block_the_page(opened: Any, model: Any, penguins: pd.DataFrame, tmp_path: Path) -> None:
    """While 200,000 rows are read, decided and sorted, the page answers within half a second."""
    rows = penguins.sample(200_000, replace=True, random_state=0)[COLUMNS]
    page = opened({"model": "penguins", "view": "rows"})
    page.evaluate(
        """() => { let last = performance.now(); window.longest = 0; setInterval(() => {
        const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now; }, 10); }"""
    )
    rows.to_csv(tmp_path / "rows.csv", index=False)
    page.locator("#file").set_input_files(tmp_path / "rows.csv")
    page.wait_for_selector("#rows table", timeout=90_000)
    assert page.locator("#where").inner_text() == "Rows 1 to 50 of 200,000"
    cell(page, "Adelie", "Gentoo").fill("1.05")
    page.wait_for_selector("#flipped:has-text('%')")
    page.locator("#rows thead").get_by_role("button", name="margin", exact=True).click()
    page.wait_for_selector("#rows th[aria-sort=ascending]:has-text('margin')")
    assert page.evaluate("window.longest") < 500
    decisions = po.decide(model.predict_proba(rows), po.Utility([[1, 0, 1.05], [0, 1, 0], [0, 0, 1]], CLASSES, CLASSES))
    settled(page)
    assert value(page, "margin") == pytest.approx(np.median(decisions.margin), rel=1e-9)


# --- the address ------------------------------------------------------------------------------------------------------


def seen(page: Any) -> list[str]:
    """All that a reader sees of the decisions and rows."""
    return [page.locator(part).inner_text() for part in ("#decisions", "main h2:visible >> nth=0", "nav")]


@pytest.mark.slow
def test_a_link_shows_a_colleague_the_same(opened: Any, few: pd.DataFrame) -> None:
    page = opened({"model": "penguins"})
    page.get_by_role("button", name="Typical row", exact=True).click()
    field(page, "bill_depth_mm").fill("18.25")
    cell(page, "Gentoo", "Adelie").fill("0.5")
    page.locator("#curve-column").select_option("body_mass_g")
    settled(page)
    other = opened(at_url(page))
    settled(other)
    assert seen(other) == seen(page)
    assert field(other, "bill_depth_mm").input_value() == "18.25"
    assert cell(other, "Gentoo", "Adelie").input_value() == "0.5"
    assert numbers_in(other, "#curve .curve") == numbers_in(page, "#curve .curve")
    page.get_by_role("link", name="Many rows").click()
    read_rows(page, few.to_csv(index=False))
    page.locator("#rows thead").get_by_role("button", name="margin", exact=True).click()
    settled(page)
    page.get_by_label("only rows that flip").check()
    settled(page)
    other = opened(at_url(page))
    settled(other)
    assert seen(other) == seen(page)
    assert table_state(other) == table_state(page)


def at_url(page: Any) -> dict[str, Any]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).fragment).items()}


@pytest.mark.slow
def test_back_and_forward(opened: Any, few: pd.DataFrame) -> None:
    page = opened({"model": "penguins"})
    page.get_by_role("button", name="Typical row", exact=True).click()
    settled(page)
    page.get_by_role("link", name="Many rows").click()
    read_rows(page, few.to_csv(index=False))
    page.get_by_role("button", name="Next").click()
    settled(page)
    second = table_state(page)
    steps = []
    for _ in range(4):
        steps.append(page.url)
        page.go_back()
        settled(page)
    assert page.get_by_text("There is no row yet").is_visible()
    for url in reversed(steps):
        page.go_forward()
        settled(page)
        assert page.url == url
    assert table_state(page) == second


@pytest.mark.slow
@pytest.mark.parametrize(
    "fragment",
    [
        "model=penguins&row=%7B%22island",
        "model=nobody&utility=[]",
        "utility={%22actions%22:[1],%22matrix%22:[[1],[2]]}",
        "curve=nothing&view=else&sort=3",
    ],
)
def test_an_address_that_was_cut_off(opened: Any, server: Process, fragment: str, model: Any) -> None:
    page = opened({})
    page.goto(f"{server.url}/#{fragment}")
    page.reload()
    page.get_by_role("button", name="Typical row", exact=True).click()
    page.wait_for_selector("#curve .chart")
    check_row(page, model, TYPICAL, po.Utility.zero_one(CLASSES))


@pytest.mark.slow
def test_a_table_that_is_gone(opened: Any) -> None:
    page = opened({"model": "penguins", "view": "rows", "table": "0" * 32}, expected=[REFUSED])
    page.get_by_text("no longer on the server").wait_for()
    page.get_by_role("button", name="Other rows").click()
    assert page.locator("#pasted").is_visible()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wrong_values_are_told_where_they_are(opened: Any, model: Any) -> None:
    page = opened(row_state(), expected=[REFUSED])
    page.wait_for_selector("#curve .chart")
    wrong = field(page, "body_mass_g")
    wrong.fill("heavy")
    assert wrong.get_attribute("aria-invalid") == "true"
    message = page.locator(f"#{wrong.get_attribute('aria-describedby').split()[-1]}")
    assert message.inner_text().startswith("This is not a number")
    assert "stale" in page.locator("#probabilities").get_attribute("class")
    wrong.fill("4200")
    assert wrong.get_attribute("aria-invalid") is None
    settled(page)
    assert "stale" not in page.locator("#probabilities").get_attribute("class")
    page.locator("h1").click()
    page.evaluate("document.activeElement.blur()")
    paste(page, "\t".join(COLUMNS) + "\n" + "\t".join(["Atlantis", "40", "17", "200", "4000", "", "2008"]))
    page.wait_for_selector("#row-form [aria-invalid]")
    assert page.evaluate("document.activeElement.id") == field(page, "island").get_attribute("id")
    assert "'Atlantis'" in page.locator("#row-form").inner_text()
    page.get_by_role("button", name="Accept new levels").click()
    settled(page)
    row = {**TYPICAL, "island": "Atlantis", "bill_length_mm": 40, "bill_depth_mm": 17, "flipper_length_mm": 200}
    with pytest.warns(UserWarning, match="Atlantis"):
        check_row(page, model, row | {"body_mass_g": 4000, "sex": None}, po.Utility.zero_one(CLASSES))


@pytest.mark.slow
def test_wrong_tables_are_told_where_they_are(opened: Any, model: Any, few: pd.DataFrame) -> None:
    page = opened({"model": "penguins", "view": "rows"}, expected=[REFUSED])
    page.get_by_role("button", name="Read these rows").click()
    assert "no rows yet" in page.get_by_role("alert").filter(has_text="rows").inner_text()
    broken = few[COLUMNS].astype({"body_mass_g": object})
    broken.loc[4, "body_mass_g"] = "heavy"
    page.locator("#pasted").fill(broken.to_csv(index=False))
    page.get_by_role("button", name="Read these rows").click()
    page.get_by_text("Row 5: column 'body_mass_g' holds 'heavy'").wait_for()
    selected = """() => { const area = document.activeElement;
      return area.value.slice(area.selectionStart, area.selectionEnd); }"""
    assert page.evaluate(selected) == broken.to_csv(index=False).splitlines()[5]
    wider = few[COLUMNS].assign(habitat="sea", island=few["island"].replace("Dream", "Atlantis"))
    page.locator("#pasted").fill(wider.to_csv(index=False))
    page.get_by_role("button", name="Read these rows").click()
    page.get_by_role("button", name="Leave unknown columns out").click()
    page.get_by_role("button", name="Accept new levels").click()
    page.wait_for_selector("#rows table")
    settled(page)
    about = page.locator("#table-about").inner_text()
    assert "habitat" in about
    assert "Atlantis" in about
    zero_one = po.Utility.zero_one(CLASSES)
    with pytest.warns(UserWarning, match="Atlantis"):
        check_table(page, model, wider, zero_one, zero_one)


@pytest.mark.slow
def test_utilities_that_are_no_numbers_change_nothing(opened: Any, model: Any) -> None:
    page = opened(row_state())
    page.wait_for_selector("#curve .chart")
    cell(page, "Adelie", "Adelie").fill("much")
    assert "stale" in page.locator("#decisions").get_attribute("class")
    assert "One cell is not a number" in page.locator("#utilities .trouble").inner_text()
    check_row(page, model, TYPICAL, po.Utility.zero_one(CLASSES))
    assert "utility" not in state_of(page)


@pytest.mark.slow
def test_a_server_that_is_gone(new_page: Any, model_file: Path) -> None:
    page = new_page(expected=["Failed to load resource: net::ERR_CONNECTION_REFUSED"])
    with serving(f"penguins={model_file}") as server:
        page.goto(f"{server.url}/")
        page.wait_for_selector("html[data-ready]")
    page.get_by_role("button", name="Typical row", exact=True).click()
    page.get_by_text("The server does not answer").first.wait_for()
    assert page.get_by_role("button", name="Try again").is_visible()


# --- several models, and a token --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_another_model_is_chosen(opened: Any, numbers_model: Any) -> None:
    page = opened(row_state())
    page.wait_for_selector("#curve .chart")
    page.get_by_label("Model").select_option("numbers")
    page.get_by_role("button", name="Typical row", exact=True).click()
    field(page, "x1").fill("1.5")
    settled(page)
    shown = numbers_in(page, "#probabilities .probabilities")
    P = numbers_model.predict_proba(np.array([[0.0, 1.5, 0.0, 0.0]]))[0]
    np.testing.assert_allclose([shown[name][0] for name in ("0", "1", "2")], P, atol=6e-4)
    while "penguins" not in page.locator("#about").inner_text():
        page.go_back()
        settled(page)
    assert page.get_by_label("Model").input_value() == "penguins"


@pytest.mark.slow
def test_a_token_is_asked_for(opened: Any, model_file: Path, tmp_path: Path) -> None:
    token = "a-token-of-many-letters"
    (tmp_path / "token").write_text(token)
    with serving(f"penguins={model_file}", "--token-file", str(tmp_path / "token")) as server:
        page = open_locked(opened, server)
        page.get_by_label("Token").fill("a guess")
        page.keyboard.press("Enter")
        page.get_by_text("This token is not the one").wait_for()
        assert page.evaluate("document.activeElement.id") == "token-value"
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Typical row", exact=True).click()
        page.wait_for_selector("#curve .chart")
        assert token not in page.url
        page.reload()
        page.wait_for_selector("#curve .chart")  # this tab remembers it
        assert page.evaluate("Object.keys(localStorage).length") == 0


def open_locked(opened: Any, server: Process) -> Any:
    """The page of a server that wants a token."""
    page = opened({}, expected=[REFUSED], at=server, locked=True)
    page.get_by_label("Token").wait_for()
    return page


# --- for everybody ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_keys_are_enough(opened: Any, model: Any, few: pd.DataFrame) -> None:
    page = opened({"model": "penguins"})

    def tab_to(wanted: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("(wanted) => document.activeElement.matches(wanted)", wanted):
                return
        raise AssertionError(f"{wanted} is not reached")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    tab_to("#typical")
    page.keyboard.press("Enter")
    tab_to("#field-1")
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    settled(page)
    row = TYPICAL | {"bill_length_mm": state_of(page)["row"]["bill_length_mm"]}
    assert 43.9 < row["bill_length_mm"] < 45.5
    check_row(page, model, row, po.Utility.zero_one(CLASSES))
    tab_to("#curve-column")
    page.keyboard.press("ArrowDown")
    settled(page)
    tab_to("#curve .chart")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    settled(page)
    assert state_of(page)["row"]["bill_depth_mm"] == 13.1
    tab_to("[data-state='2'][data-action='0']")
    page.keyboard.type("7")
    settled(page)
    row |= {"bill_depth_mm": 13.1}
    check_row(page, model, row, po.Utility([[1, 0, 0], [0, 1, 0], [7, 0, 1]], CLASSES, CLASSES))
    page.keyboard.press("Control+z")
    settled(page)
    check_row(page, model, row, po.Utility.zero_one(CLASSES))
    page.reload()
    tab_to("#to-rows")
    page.keyboard.press("Enter")
    tab_to("#pasted")
    page.keyboard.insert_text(few.to_csv(index=False))
    tab_to("#read")
    page.keyboard.press("Enter")
    page.wait_for_selector("#rows table")
    settled(page)
    assert page.evaluate("document.activeElement.id") == "h-rows"
    tab_to("#filters select")
    page.keyboard.press("ArrowDown")
    settled(page)
    tab_to("#rows .sort")
    tab_to(".open")
    page.keyboard.press("Enter")
    settled(page)
    assert page.evaluate("document.activeElement.id") == "h-row"


STATES: dict[str, dict[str, Any]] = {
    "empty": {"model": "penguins"},
    "row": {"model": "penguins", "row": TYPICAL, "utility": utility_state(COSTS)},
    "refused": {"model": "penguins", "row": TYPICAL | {"island": "Atlantis"}},
    "intake": {"model": "penguins", "view": "rows"},
}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_barriers(opened: Any, barriers: Any, few: pd.DataFrame, width: int, scheme: str) -> None:
    found = {}
    for name, state in STATES.items():
        page = opened(state, width=width, scheme=scheme, expected=[REFUSED])
        settled(page)
        if name == "row":
            cell(page, "Adelie", "keep").fill("wrong")
            field(page, "bill_depth_mm").fill("wrong")
        found[name] = barriers(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    page.locator("#pasted").fill("a,b\n1,2\n")
    page.get_by_role("button", name="Read these rows").click()
    page.get_by_role("button", name="Leave unknown columns out").wait_for()
    found["refused table"] = barriers(page)
    read_rows(page, few.to_csv(index=False))
    cell(page, "Adelie", "Gentoo").fill("1.05")
    settled(page)
    found["table"] = barriers(page)
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Next").click()
    settled(page)
    heights = page.locator(".open").evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().height)")
    assert max(heights) < 30  # 120 on one line
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.slow
def test_nothing_moves_by_itself(opened: Any) -> None:
    page = opened(row_state(), reduced_motion="reduce")
    page.wait_for_selector("#curve .chart")
    field(page, "bill_length_mm").fill("50")
    settled(page)
    assert page.evaluate("document.getAnimations().length") == 0


@pytest.mark.slow
def test_what_has_come_of_a_change_is_said(opened: Any) -> None:
    page = opened(row_state())
    page.wait_for_selector("#curve .chart")
    field(page, "bill_length_mm").fill("33")
    said = page.locator("[role=status].unseen").get_by_text("Most probable: Adelie. Recommended: Adelie.", exact=True)
    said.wait_for(state="attached")


# --- columns and classes of every kind --------------------------------------------------------------------------------

KINDS = 300
TOUCHING = """() => { const boxes = [...document.querySelectorAll("#curve .tick[text-anchor=middle]")].map((text) =>
  [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([text, a], i) => boxes.slice(0, i).filter(([, b]) => a.left < b.right && b.left < a.right)
    .map(([other]) => [text, other])); }"""


@pytest.fixture(scope="module")
def varied() -> tuple[Any, pd.DataFrame]:
    """A model with dates, booleans, durations, many levels, hostile names, and classes that are true or false."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=KINDS)
    table = pd.DataFrame(
        {
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 500, KINDS), unit="D"),
            "zoned": pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(rng.integers(0, 9_000, KINDS), unit="h"),
            "took": pd.to_timedelta(rng.integers(1, 9_000, KINDS), unit="s"),
            "is <b>new</b>": rng.random(KINDS) < 0.5,
            'town, "quoted"; <i>': [f"town {i % 60}" for i in range(KINDS)],
            "count": rng.integers(0, 50, KINDS),
            "x": x,
            "good": rng.random(KINDS) < 1 / (1 + np.exp(-2 * x)),
        }
    )
    return make_pipeline(po.TableEncoder(), po.BayesianSoftmaxRegression()).fit(table, "good"), table


@pytest.mark.slow
def test_columns_of_every_kind(opened: Any, varied: Any, tmp_path: Path) -> None:
    model, table = varied
    po.save(model, tmp_path / "varied.model")
    with serving(str(tmp_path / "varied.model")) as server:
        page = opened({}, at=server)
        page.get_by_role("button", name="Typical row", exact=True).click()
        page.wait_for_selector("#curve .chart")
        town = 'town, "quoted"; <i>'
        for column, text in {"when": "2024-03-05T10:30", "zoned": "2024-06-07T08:00", "took": "125.5", town: "town 17"}.items():  # noqa: E501  # fmt: skip
            field(page, column).fill(text)
        field(page, "is <b>new</b>").select_option("true")
        field(page, "x").fill("\u22120.75")
        field(page, "count").fill("")
        settled(page)
        row = state_of(page)["row"]
        expected = {"when": "2024-03-05T10:30", "zoned": "2024-06-07T08:00Z", "took": 125.5, town: "town 17"}
        assert row == expected | {"is <b>new</b>": True, "x": -0.75, "count": None}
        given = pd.DataFrame([row])
        given["when"] = pd.to_datetime(given["when"])
        given["zoned"] = pd.to_datetime(given["zoned"], utc=True)
        given["took"] = pd.to_timedelta(given["took"], unit="s")
        given["count"] = np.nan
        P = model.predict_proba(given[table.columns[:-1]])[0]
        shown = numbers_in(page, "#probabilities .probabilities")
        np.testing.assert_allclose([shown["False"][0], shown["True"][0]], P, atol=6e-4)
        for column in table.columns[:-1]:
            page.locator("#curve-column").select_option(column)
            settled(page)
            assert len(numbers_in(page, "#curve .curve")) > 1
            assert page.evaluate(TOUCHING) == []
        page.get_by_role("link", name="Many rows").click()
        written = table.assign(took=table["took"].astype(str).str.removeprefix("0 days "))
        read_rows(page, written.to_csv(index=False))
        assert "300 rows with 8 columns" in page.locator("#table-about").inner_text()
        predicted = model.predict(table[table.columns[:-1]])[:50]
        assert column_of(page, "most probable") == [str(label) for label in predicted]
        page.locator("#pasted").evaluate("(area) => area.blur()")
        page.get_by_role("button", name="Other rows").click()
        page.get_by_role("button", name="Put in an example").click()
        read_rows(page, page.locator("#pasted").input_value())
        assert "6 rows with 7 columns" in page.locator("#table-about").inner_text()


# --- small things that went wrong, or could ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_file_may_fall_on_the_form(opened: Any, few: pd.DataFrame) -> None:
    """It is read there, too: the browser would leave the page and show the file."""
    page = opened(row_state())
    transfer = page.evaluate_handle(
        """(content) => { const all = new DataTransfer(); all.items.add(new File([content], "rows.csv"));
        return all; }""",
        few.to_csv(index=False),
    )
    page.dispatch_event("#field-1", "dragover", {"dataTransfer": transfer})
    page.dispatch_event("#field-1", "drop", {"dataTransfer": transfer})
    page.wait_for_selector("#rows table")
    assert "120 rows" in page.locator("#table-about").inner_text()


@pytest.mark.slow
def test_going_back_takes_the_utilities_back_too(opened: Any, model: Any) -> None:
    page = opened(row_state())
    page.wait_for_selector("#curve .chart")
    page.get_by_role("link", name="Many rows").click()
    cell(page, "Adelie", "Adelie").fill("9")
    settled(page)
    page.go_back()  # the focus is still in the cell
    settled(page)
    assert cell(page, "Adelie", "Adelie").input_value() == "1"
    check_row(page, model, TYPICAL, po.Utility.zero_one(CLASSES))


@pytest.mark.slow
def test_utilities_with_other_actions_are_not_compared(opened: Any, model: Any, few: pd.DataFrame) -> None:
    page = opened(row_state(utility=utility_state(COSTS)))
    settled(page)
    check_row(page, model, TYPICAL, COSTS)
    assert page.locator(".flip").count() == 0
    page.get_by_role("link", name="Many rows").click()
    read_rows(page, few.to_csv(index=False))
    assert page.locator("#flipped").count() == 0
    assert page.get_by_label("only rows that flip").count() == 0


@pytest.mark.slow
def test_many_actions_have_room(opened: Any) -> None:
    many = {"actions": [f"action {a}" for a in range(12)], "matrix": [[k + a for a in range(12)] for k in range(3)]}
    page = opened(row_state(utility=many), width=1280)
    settled(page)
    assert (
        page.locator("#costs").evaluate("(costs) => getComputedStyle(costs).gridTemplateColumns.split(' ').length") == 1
    )
    assert page.locator("#decisions .lead strong").first.inner_text() == "action 11"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actions", "columns"),
    [(["keep", "release", "ask"], 2), (["call it Adelie", "call it Chinstrap", "call it Gentoo", "measure"], 1)],
)
def test_actions_of_long_names_are_all_in_sight(opened: Any, actions: list[str], columns: int) -> None:
    utility = {"actions": actions, "matrix": [[k + a for a in range(len(actions))] for k in range(3)]}
    page = opened(row_state(utility=utility), width=1280)
    settled(page)
    assert page.locator("#utilities .wide").evaluate("(table) => table.scrollWidth <= table.clientWidth")
    shown = page.locator("#costs").evaluate("(costs) => getComputedStyle(costs).gridTemplateColumns.split(' ').length")
    assert shown == columns


@pytest.mark.slow
def test_what_stays_in_sight_hides_no_focus(opened: Any) -> None:
    """Fields that are reached by keys lie above the line at the bottom."""
    page = opened(row_state(), width=390)
    page.wait_for_selector("#curve .chart")
    page.locator("#typical").focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        bottoms = page.evaluate(
            "[document.activeElement, document.getElementById('verdict')].map((one) => one.getBoundingClientRect())"
        )
        assert bottoms[0]["top"] < bottoms[1]["top"]


@pytest.mark.slow
def test_a_value_that_the_model_needs(opened: Any) -> None:
    """Models without a table encoder take no missing values: that is said at the field, while others are typed."""
    page = opened({"model": "numbers"}, expected=[REFUSED])
    for column in ("x0", "x1", "x2"):
        field(page, column).fill("1")
        settled(page)
        assert page.evaluate("document.activeElement.id") == field(page, column).get_attribute("id")
    wrong = page.locator("#row-form [aria-invalid]")
    assert [one.get_attribute("id") for one in wrong.all()] == [field(page, "x3").get_attribute("id")]
    field(page, "x3").fill("1")
    settled(page)
    assert page.locator("#row-form [aria-invalid]").count() == 0
    assert page.locator("#decisions .lead").is_visible()


@pytest.mark.slow
def test_more_classes_than_utilities_can_be_typed_for(opened: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(120), 5)
    X = rng.normal(size=(600, 3)) + y[:, None] / 10
    model = po.GaussianClassifier(covariance="tied").fit(X, y)
    po.save(model, tmp_path / "many.model")
    with serving(str(tmp_path / "many.model")) as server:
        page = opened({"row": {"x0": 3.0, "x1": 3.1, "x2": 2.9}}, at=server, width=390)
        settled(page)
        assert "14,400 utilities: too many" in page.locator("#utilities").inner_text()
        best = model.predict(np.array([[3.0, 3.1, 2.9]]))[0]
        assert page.locator("#decisions .lead strong").first.inner_text() == str(best)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
