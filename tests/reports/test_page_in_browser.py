"""The report in a browser without a network: it draws, decides as the library does, and is used by keys alone."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB

from posteriori import Utility, decide
from posteriori.decision.scores import realised_utility
from posteriori.reports.evaluation import score_probabilities
from posteriori.reports.page import report_page

pytestmark = pytest.mark.xdist_group("browser")  # one process, one browser

X = pd.DataFrame(load_iris().data[:, :2], columns=["length", "width"])
CLASSES = np.array(["se<b>tosa", "versi&color", "virgin\"ica'"])
Y = CLASSES[load_iris().target]
MODEL = GaussianNB().fit(X, Y)
P = MODEL.predict_proba(X)
SCORED = score_probabilities(Y, P, CLASSES)
LONG = 'long "name", ' * 30


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "irises.html"
    path.write_text(report_page(MODEL, X, Y, SCORED, title="Irises", model_name="naive Bayes"), encoding="utf-8")
    return path


@pytest.fixture
def opened(new_page):
    """Opens a file as a user would, without a network, and tells at the end that nothing was asked for."""
    asked = []

    def open_page(path, **options):
        page = new_page(offline=True, **options)
        page.on("request", lambda request: request.url == path.as_uri() or asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_function("document.querySelector('#realised')")
        return page

    yield open_page
    assert [url for url in asked if not url.startswith("blob:")] == []


def cell(page, state, action):
    return page.get_by_label(f"Utility of {action} when the truth is {CLASSES[state]}", exact=True)


def value(page, key):
    return float(page.locator(f"#{key}").get_attribute("value"))


def counts(page):
    rows = page.locator("#taken tbody tr").all()
    return np.array([[int(text.replace(",", "")) for text in row.locator("td").all_inner_texts()] for row in rows])


def check(page, utility, rows=slice(None)):
    """What the page shows is what the library says."""
    decisions = decide(P[rows], utility)
    assert value(page, "realised") == pytest.approx(realised_utility(Y[rows], decisions.actions, utility), rel=1e-12)
    assert value(page, "expected") == pytest.approx(decisions.expected_utility.max(axis=1).mean(), rel=1e-12)
    assert value(page, "known") == pytest.approx(utility.matrix[SCORED.codes[rows]].max(axis=1).mean(), rel=1e-12)
    best = max(realised_utility(Y[rows], [action] * len(Y[rows]), utility) for action in utility.actions)
    assert value(page, "fixed") == pytest.approx(best, rel=1e-12, abs=1e-12)
    expected = np.zeros(utility.matrix.shape, dtype=int)
    np.add.at(expected, (SCORED.codes[rows], decisions.codes), 1)
    np.testing.assert_array_equal(counts(page), expected)
    totals = page.locator("#taken tfoot tr").first.locator("td").all_inner_texts()
    assert [int(text) for text in totals] == expected.sum(axis=0).tolist()


@pytest.mark.quick
def test_decisions_follow_what_is_typed(opened, path):
    page = opened(path)
    U = np.eye(3)
    check(page, Utility(U, CLASSES))
    for (k, a), text in {(1, 2): "-4", (2, 1): "\u22122.5", (0, 0): "1e1"}.items():
        cell(page, k, CLASSES[a]).fill(text)
        U[k, a] = float(text.replace("\u2212", "-"))
        check(page, Utility(U, CLASSES))


def test_actions_come_and_go(opened, path):
    page = opened(path)
    page.get_by_label("New action").fill("reject")
    page.get_by_label("worth, whatever the truth").fill("0.8")
    page.get_by_role("button", name="Add action").click()
    wider = Utility.zero_one(CLASSES).with_reject(0.8)
    check(page, wider)
    assert counts(page)[:, 3].sum() > 0
    page.get_by_role("button", name=f"Remove action {CLASSES[0]}", exact=True).click()
    check(page, Utility(wider.matrix[:, 1:], CLASSES, wider.actions[1:].tolist()))
    page.get_by_role("button", name=f"Remove action {CLASSES[1]}", exact=True).click()
    page.get_by_role("button", name="Remove action reject").click()
    assert page.get_by_role("button", name="Remove action").count() == 0  # the last one stays
    page.get_by_role("button", name="Start again").click()
    check(page, Utility.zero_one(CLASSES))
    page.get_by_role("button", name="Undo").click()
    only = page.get_by_label("Name of action").all()
    assert [name.input_value() for name in only] == [CLASSES[2]]


def test_an_action_gets_another_name(opened, path):
    page = opened(path)
    page.get_by_label(f"Name of action {CLASSES[1]}", exact=True).fill("call it so")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.action") == "1"
    assert "call it so" in page.locator("#taken thead").inner_text()
    check(page, Utility(np.eye(3), CLASSES, [CLASSES[0], "call it so", CLASSES[2]]))


def test_what_is_no_number_is_marked(opened, path):
    page = opened(path)
    before = counts(page)
    wrong = cell(page, 1, CLASSES[1])
    for text in ("", "-", "1,5", "Infinity", "1e999", "0x10", "two", "--1"):
        wrong.fill(text)
        assert wrong.get_attribute("aria-invalid") == "true"
        assert "One cell is not a number" in page.get_by_role("alert").inner_text()
        np.testing.assert_array_equal(counts(page), before)
    wrong.fill("1")
    assert wrong.get_attribute("aria-invalid") is None
    assert page.get_by_role("alert").inner_text() == ""
    page.get_by_label("worth, whatever the truth").fill("much")
    page.get_by_role("button", name="Add action").click()
    assert page.get_by_label("worth, whatever the truth").get_attribute("aria-invalid") == "true"
    page.get_by_label("worth, whatever the truth").fill("0")
    page.get_by_label("New action").fill(CLASSES[0])
    page.get_by_role("button", name="Add action").click()
    assert "already" in page.get_by_role("alert").inner_text()
    check(page, Utility.zero_one(CLASSES))


def test_keys_are_enough(opened, path):
    page = opened(path)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.state") is not None:
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.type("3")  # what was there is selected
    U = np.eye(3)
    U[1, 0] = 3
    check(page, Utility(U, CLASSES))
    page.get_by_label("New action").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("ask")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("2.5")
    page.keyboard.press("Enter")
    wider = Utility(U, CLASSES).with_reject(2.5, "ask")
    check(page, wider)
    assert page.evaluate("document.activeElement.dataset.action") == "3"
    page.get_by_role("button", name="Remove action ask").focus()
    page.keyboard.press("Space")
    check(page, Utility(U, CLASSES))
    assert page.evaluate("document.activeElement.dataset.action") == "2"


def test_the_csv_is_one_that_the_library_reads(opened, path, tmp_path):
    page = opened(path)
    cell(page, 0, CLASSES[1]).fill("-7.25")
    page.get_by_label("New action").fill(LONG)
    page.get_by_role("button", name="Add action").click()
    page.get_by_text("These utilities as a CSV file").click()
    (tmp_path / "utility.csv").write_text(page.get_by_label("Utility.from_csv").input_value(), encoding="utf-8")
    utility = Utility.from_csv(tmp_path / "utility.csv").ordered(CLASSES)
    np.testing.assert_array_equal(utility.matrix, [[1, -7.25, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    assert utility.actions.tolist() == [*CLASSES, LONG.strip()]


def test_the_csv_can_be_saved(opened, path):
    page = opened(path)
    page.get_by_text("These utilities as a CSV file").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as utility.csv").click()
    assert download.value.suggested_filename == "utility.csv"
    np.testing.assert_array_equal(Utility.from_csv(download.value.path()).ordered(CLASSES).matrix, np.eye(3))


@pytest.mark.quick
def test_light_and_dark(opened, path):
    seen = {}
    for scheme in ("light", "dark"):
        page = opened(path, scheme=scheme)
        style = "getComputedStyle(document.querySelector('{}')).{}"
        seen[scheme] = [
            page.evaluate(style.format("body", "backgroundColor")),
            page.evaluate(style.format(".chart .label", "fill")),
            page.evaluate(style.format("#chart-confusion .in-cell.on-dark", "fill")),
        ]
    assert seen["light"] == ["rgb(255, 255, 255)", "rgb(22, 25, 29)", "rgb(255, 255, 255)"]
    assert seen["dark"] == ["rgb(21, 24, 28)", "rgb(230, 233, 236)", "rgb(16, 21, 26)"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_barriers(opened, path, barriers, width, scheme):
    page = opened(path, width=width, scheme=scheme)
    cell(page, 1, CLASSES[1]).fill("wrong")  # what is said of it must be legible too
    assert barriers(page) == []


def test_a_telephone_and_paper(opened, path):
    page = opened(path, width=360)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.get_by_role("navigation").is_visible()


@pytest.mark.slow
def test_many_long_names_and_rows(opened, tmp_path):
    rng = np.random.default_rng(0)
    K, n = 50, 3000
    names = np.array([f"</script><script>alert({k})</script>{'x' * 500}" for k in range(K)])
    names.sort()
    codes = rng.integers(0, K, n)
    Q = rng.dirichlet(np.ones(K), n)
    scored = score_probabilities(names[codes], Q, names)
    table = rng.normal(size=(n, 2))
    model = GaussianNB().fit(table, names[codes])
    html = report_page(model, table, names[codes], scored, title="x" * 300, model_name="y" * 300)
    (tmp_path / "many.html").write_text(html, encoding="utf-8")
    page = opened(tmp_path / "many.html", width=360)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    rows = np.sort(np.random.default_rng(0).choice(n, 2000, replace=False))
    page.locator("#utilities input[data-state='3'][data-action='4']").fill("20")
    U = np.eye(K)
    U[3, 4] = 20
    decisions = decide(Q[rows], Utility(U, names))
    expected = realised_utility(names[codes[rows]], decisions.actions, Utility(U, names))
    assert value(page, "realised") == pytest.approx(expected, rel=1e-12)


def test_a_number_can_be_pointed_at(opened, path):
    page = opened(path)
    page.locator("#chart-confusion .in-cell").first.hover()
    tip = page.locator("#chart-confusion .tip")
    assert tip.is_visible()
    assert tip.locator("strong").inner_text() == CLASSES[0]  # as text
    assert tip.locator("dd").first.inner_text() == str(SCORED.confusion[0, 0])


def test_the_policy_is_in_force(browser, path, tmp_path):
    smuggled = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\"></main>"
    changed = tmp_path / "changed.html"
    changed.write_text(path.read_text(encoding="utf-8").replace("</main>", smuggled), encoding="utf-8")
    page = browser.new_page()
    page.goto(changed.as_uri())
    page.wait_for_selector(".chart svg")
    assert page.title() == "Irises"
    styled = "document.body.setAttribute('style', 'display: none'); getComputedStyle(document.body).display"
    assert page.evaluate(styled) == "block"
    page.close()
