"""Each example of the gallery is well formed, runs without a warning, and what it says holds."""

import ast
import re
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import posteriori as po

matplotlib = pytest.importorskip("matplotlib")
style = pytest.importorskip("matplotlib.style")

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "examples" / "gallery"
STYLE = ROOT / "docs" / "posteriori.mplstyle"
EXAMPLES = {path.stem.removeprefix("plot_"): path for path in sorted(GALLERY.glob("*/plot_*.py"))}


def each_example(test):
    return pytest.mark.parametrize("name", EXAMPLES)(test)


def title_of(text):
    """The title of a text in reStructuredText, whose line below is as long."""
    title, line, *_ = text.strip().splitlines()
    assert line in ("=" * len(title), "-" * len(title))
    return title


# --- form ---


def test_there_are_many_examples_in_named_sections():
    sections = {path.parent for path in EXAMPLES.values()}
    assert len(EXAMPLES) >= 30
    assert len({path.name for path in EXAMPLES.values()}) == len(list(GALLERY.glob("*/*.py")))
    titles = [title_of((folder / "GALLERY_HEADER.rst").read_text("utf-8")) for folder in sorted({GALLERY, *sections})]
    assert len(set(titles)) == len(titles)


def test_titles_are_told_apart():
    titles = [title_of(ast.get_docstring(ast.parse(path.read_text("utf-8")))) for path in EXAMPLES.values()]
    assert len(set(titles)) == len(titles)


@each_example
def test_an_example_begins_with_its_title_and_ends_with_what_to_take_away(name):
    text = EXAMPLES[name].read_text("utf-8")
    tree = ast.parse(text)
    title, _, body = ast.get_docstring(tree).partition("\n\n")
    assert len(title_of(title)) < 50
    assert len(body.split()) > 15
    last = text.split("# %%\n")[-1]
    assert last.startswith("# **Take-away.** ")
    assert all(line.startswith("# ") for line in last.strip().splitlines())
    assert ast.unparse(tree).count("plt.show()") == 1  # one picture


@each_example
def test_an_example_uses_public_names_only(name):
    for node in ast.walk(ast.parse(EXAMPLES[name].read_text("utf-8"))):
        if isinstance(node, ast.Attribute):
            assert not re.match("_[^_]", node.attr)
            if isinstance(node.value, ast.Name) and node.value.id == "po":
                assert node.attr in po.__all__
        if isinstance(node, ast.Import):
            assert all(
                not a.name.startswith("posteriori") or (a.name, a.asname) == ("posteriori", "po") for a in node.names
            )
        if isinstance(node, ast.ImportFrom) and node.module.startswith("posteriori"):
            assert node.module == "posteriori.kernels"
            assert {alias.name for alias in node.names} <= set(po.kernels.__all__)


@each_example
def test_an_example_is_the_same_in_each_run(name):
    for node in ast.walk(ast.parse(EXAMPLES[name].read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("default_rng"):
            assert len(node.args) == 1
        if isinstance(node, ast.Attribute):
            assert not ast.unparse(node).startswith(("np.random.rand", "np.random.seed"))


@each_example
def test_an_example_leaves_the_look_to_the_style(name):
    assert not re.search(r"rcParams|plt\.style", EXAMPLES[name].read_text("utf-8"))


def test_the_style_has_the_colours_of_charts_in_reports():
    css = (ROOT / "src" / "posteriori" / "reports" / "page" / "style.css").read_text("utf-8")
    light = re.findall(r"--c\d: (#[0-9a-f]{6});", css[: css.index("prefers-color-scheme")])
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.simplefilter("error")
        style.use(STYLE)
        cycle = matplotlib.rcParams["axes.prop_cycle"].by_key()["color"]
    assert cycle == light


# --- what they say ---


class Seen:
    """A run of an example: its names, what it printed, and the axes of its picture."""

    def __init__(self, name):
        import matplotlib.pyplot as plt

        printed = StringIO()
        matplotlib.use("agg")
        plt.close("all")  # what other tests of this process have left open
        with matplotlib.rc_context(), warnings.catch_warnings(), redirect_stdout(printed), threadpool_limits(1):
            style.use(STYLE)
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*non-interactive.*")
            try:
                self.names = run_path(str(EXAMPLES[name]))
                (number,) = plt.get_fignums()
                self.figure = plt.figure(number)
                self.figure.canvas.draw()  # what is wrong with labels shows here
            finally:
                plt.close("all")
        self.printed = printed.getvalue()
        self.axes = self.figure.axes

    def __getitem__(self, name):
        return self.names[name]

    def in_titles(self):
        """The last number in the title of each axes that has one."""
        titles = [ax.get_title(loc="left") for ax in self.axes]
        return [float(re.findall(r"-?\d+\.?\d*", title)[-1]) for title in titles if re.search(r"\d", title)]

    def curves(self, place=0):
        """The values of each line with a label of its own, by that label."""
        lines = self.axes[place].get_lines()
        return {line.get_label(): np.asarray(line.get_ydata()) for line in lines if line.get_label()[0] != "_"}

    def alternative(self):
        """The text that stands for the picture: sphinx-gallery takes all titles."""
        titles = [ax.get_title(loc) for ax in self.axes for loc in ("left", "center", "right")]
        return " ".join([self.figure.get_suptitle(), *titles])


CLAIMS = {}
"""What each example says, as a function of its run."""


def claim(function):
    CLAIMS[function.__name__] = function
    return function


@claim
def regions(seen):
    score = {name: model.score(seen["X"], seen["y"]) for name, model in seen["models"].items()}
    assert min(score["Gaussian process"], score["deep Gaussian process"], score["stack"]) > score["softmax"] + 0.1


@claim
def structures(seen):
    losses = seen.in_titles()
    assert losses[0] == min(losses)
    assert seen["model"].solution_.structure == "full"


@claim
def stack(seen):
    gain = seen["gain"]
    assert gain.difference > 2 * gain.error
    assert seen["stack"].left_out_.log_loss < min(seen["losses"])
    assert sum(weight > 0.2 for weight in seen["weights"]) == 2


@claim
def tied_gaussian(seen):
    assert seen["same"] < 1e-10
    assert seen["softmax"].score(seen["X"], seen["y"]) > seen["gaussian"].score(seen["X"], seen["y"]) + 0.03


@claim
def far_from_data(seen):
    far = [[12, 0], [-12, 0], [12, -12], [-12, 12]]
    surest = {name: model.predict_proba(far).max(axis=1) for name, model in seen["models"].items()}
    assert surest["softmax"].min() > 0.99
    assert surest["Gaussian process"].max() < 0.8
    assert surest["Bayesian softmax"].min() > surest["Gaussian process"].max()


@claim
def two_kinds(seen):
    assert seen["epistemic"][0] > 0.3
    assert np.all(np.diff(seen["epistemic"]) < 0)
    assert seen["epistemic"][-1] < 0.02 < 0.7 < seen["aleatoric"][-1]


@claim
def intervals(seen):
    def area(ax):
        x, y = ax.collections[0].get_paths()[0].vertices[:-1].T
        return abs(np.sum(x * np.roll(y, 1) - y * np.roll(x, 1))) / 2

    assert area(seen.axes[0]) > 3 * area(seen.axes[1])
    truth = seen["truth"](seen["x_new"])
    assert np.mean((seen["lower"][:, 1] <= truth) & (truth <= seen["upper"][:, 1])) > 0.9


@claim
def ternary(seen):
    mean = seen["model"].predict_proba(seen["bottles"])
    np.testing.assert_allclose(seen["draws"].mean(axis=0), mean, atol=0.02)
    assert seen["draws"].std(axis=0).max() > 0.05


@claim
def coefficients(seen):
    rows = seen["table"].set_index(["class", "feature"])
    assert rows.loc[("Adelie", "bill_length_mm"), "upper"] < 0 < rows.loc[("Chinstrap", "bill_length_mm"), "lower"]
    assert rows.loc[("Chinstrap", "bill_depth_mm"), "lower"] < 0 < rows.loc[("Chinstrap", "bill_depth_mm"), "upper"]


@claim
def marginal_effects(seen):
    assert seen["effects"].groupby("feature")["mean"].sum().abs().max() < 1e-10


@claim
def approximations(seen):
    mean = {line.split()[0]: float(line.split()[2].rstrip(",")) for line in seen.printed.splitlines()}
    assert mean["laplace"] < mean["variational"] < mean["importance"] < mean["exact"]
    assert mean["exact"] - mean["importance"] < 0.2


@claim
def evidence(seen):
    best = seen["precisions"][np.argmax(seen["evidence"])]
    assert best / 2 < seen["found"] < 2 * best
    at = np.argmin(np.abs(np.log(seen["precisions"] / seen["found"])))
    assert seen["loss"][at] < min(seen["loss"]) + 0.005


@claim
def separation(seen):
    assert seen["likelihood"].solution_.status is po.Status.SEPARATED
    assert [each.category for each in seen["caught"]] == [po.SeparationWarning]
    assert np.all(np.diff(seen["slopes"]) > 0)
    assert seen["slopes"][-1] > 100


@claim
def prior_predictive(seen):
    shares = [int(re.search(r"(\d+)%", ax.get_title(loc="left"))[1]) for ax in seen.axes]
    assert shares[0] > 80 > 50 > shares[1] > shares[2]


@claim
def learning_curves(seen):
    curves = seen.curves()
    assert curves["hardly any"][0] > 0.3 + max(curves[name][0] for name in ("jeffreys", "evidence", "ard"))
    assert max(each[-1] for each in curves.values()) - min(each[-1] for each in curves.values()) < 0.02
    assert curves["ard"][1] < curves["evidence"][1]


@claim
def ard(seen):
    one, each = (np.abs(seen[name].coef_[:, 4:]) for name in ("one", "each"))
    assert each.max() < one.max() / 2
    assert np.sum(each.max(axis=0) < 0.02) >= 4
    assert seen["each"].loo().log_loss < seen["one"].loo().log_loss


@claim
def sequential(seen):
    first, last, at_once = (seen["estimates"][i] for i in (0, -2, -1))
    assert abs(last["mean"] - at_once["mean"]) < 0.05
    assert last["upper"] - last["lower"] < (first["upper"] - first["lower"]) / 3
    assert at_once["lower"] < seen["true_slope"] < at_once["upper"]


@claim
def class_prior(seen):
    assert seen["hospital"].predict_proba(seen["X"])[:, 1].mean() > 0.15
    assert seen["village"].predict_proba(seen["X"])[:, 1].mean() == pytest.approx(np.mean(seen["y"]), abs=0.01)


@claim
def kernels(seen):
    linear, rough, smooth, default = seen.in_titles()
    assert linear < rough < smooth < default


@claim
def deep_warp(seen):
    one, two = seen.in_titles()
    assert two < one


@claim
def odd_digits(seen):
    odd, labels = seen["odd"], seen["y"][seen["left"].rows]
    assert np.all(seen["P"][odd[:5]].argmax(axis=1) != labels[odd[:5]])
    assert seen["own"][odd].max() <= np.quantile(seen["own"], 0.05)


@claim
def gp_calibration(seen):
    timid, calibrated = seen.in_titles()
    assert calibrated < timid - 0.01


@claim
def prior_functions(seen):
    near = np.abs(seen["x_new"]) < 1.5
    before, after = (draws.std(axis=0) for draws in seen["curves"].values())
    assert after[near].mean() < before[near].mean() / 3
    assert after[np.abs(seen["x_new"]) > 4].mean() > 0.2


@claim
def solver_paths(seen):
    best = np.array([np.diff(seen["best"].coef_[:, 0])[0], np.diff(seen["best"].intercept_)[0]])
    gradient, stochastic, newton = (np.linalg.norm(path[-1] - best) for path in seen["paths"].values())
    assert newton < 1e-4 < stochastic < 0.3 < gradient
    furthest = seen["paths"]["stochastic gradients, 40 passes"][:, 0].max()
    assert furthest > best[0] + 0.3


@claim
def certificate(seen):
    assert seen["best"].converged
    assert 0 < seen["best"].gap_bound < 1e-10
    above, estimates = seen["above"], np.array(seen["estimates"])
    late = (above[estimates[:, 0].astype(int)] < 1e-3) & (estimates[:, 1] > 1e-10)
    ratio = estimates[late, 1] / above[estimates[late, 0].astype(int)]
    assert late.sum() > 3
    assert 0.4 < ratio.min() <= ratio.max() < 2.5


@claim
def quadrature(seen):
    few, some, many = seen.curves(1).values()
    for each in (few, some, many):
        assert np.median(each[-16:]) > 2 * np.median(each[:16])
    assert np.median(many) < np.median(some) < np.median(few)


@claim
def walkthrough(seen):
    assert 'The best action is "bus"' in seen.printed
    assert seen["expected"].argmax() == 2


@claim
def calibration(seen):
    before, after = seen.in_titles()
    assert after < before / 2


@claim
def reliability(seen):
    softmax, gaussian, forest, boosted = seen.in_titles()
    assert max(forest, boosted) < min(softmax, gaussian) - 0.1


@claim
def conformal(seen):
    for missed in seen.curves().values():
        np.testing.assert_allclose(missed, seen["alphas"], atol=0.02)
    every, some = seen.curves(1).values()
    assert np.all(every < 0.6 * some)


@claim
def left_out(seen):
    np.testing.assert_allclose(seen["by_formula"], seen["by_fits"], atol=0.015)
    formula, seen_rows = seen.in_titles()
    fits = -np.log(seen["by_fits"]).mean()
    assert abs(formula - fits) < 0.005
    assert seen_rows < fits - 0.03


@claim
def compare(seen):
    best, *others = seen["found"].models
    assert best.name == "Gaussian classes"
    softmax = next(each for each in others if each.name == "softmax")
    assert softmax.difference > 2 * softmax.difference_error


@claim
def posterior_check(seen):
    misses = po.posterior_check(seen["linear"], seen["X_new"], seen["y_new"], random_state=0)
    fits = po.posterior_check(seen["products"], seen["with_product"], seen["y_new"], random_state=0)
    assert misses.statistics["log_loss"].tail_probability < 0.025
    assert all(0.025 < each.tail_probability < 0.975 for each in fits.statistics.values())


@claim
def costs(seen):
    P, classes = seen["model"].predict_proba(seen["X"]), seen["model"].classes_
    eaten = {name: po.decide(P, seen[name], classes=classes).actions == "eat" for name in ("equal", "deadly")}
    poison = P[:, 1]
    assert np.array_equal(eaten["equal"], poison <= 1 / 2)
    assert np.array_equal(eaten["deadly"], poison <= 1 / 21)


@claim
def reject(seen):
    most_probable, two, three = seen["worth"].values()
    assert three > max(two, most_probable) + 0.1


@claim
def abstain(seen):
    every, some = seen.curves().values()
    assert every[-1] > some[-1] + 0.2
    for curve in (every, some):
        assert curve[len(curve) // 2] > curve[-1] + 0.1


@claim
def value_of_information(seen):
    P = seen["model"].predict_proba(seen["grid"])
    np.testing.assert_allclose(seen["values"].ravel(), 2 * (1 - P.max(axis=1)), atol=1e-12)
    assert np.mean(seen["worth"] > 0.4) == pytest.approx(0.43, abs=0.01)


@claim
def uncertain_decision(seen):
    few, many = (ax.get_lines()[0].get_ydata() for ax in seen.axes[2:])
    assert np.max(few) > 2 * np.max(many) > 0
    assert np.mean(many < 1e-3) > 0.7


@claim
def own_stakes(seen):
    assert np.array_equal(seen["decisions"].actions == "check", seen["fraud"] * seen["amount"] > 5)


@claim
def label_noise(seen):
    assert seen["noisy"].label_noise_ == pytest.approx(0.2, abs=0.05)
    curves = seen.curves()
    error = {name: np.abs(each - curves["true class"]).mean() for name, each in curves.items() if len(each) == 200}
    assert error["label noise: class itself"] < error["labels taken for true"] / 3


@claim
def soft_labels(seen):
    majority, counts = seen.in_titles()
    assert counts < 0.6 * majority


@claim
def missing_values(seen):
    curves = seen.curves()
    assert curves["left out"][0] == pytest.approx(curves["filled with means"][0], abs=1e-12)
    assert np.all(curves["left out"][1:] < curves["filled with means"][1:] - 0.02)


@claim
def rare_classes(seen):
    likely, bayes = (float(re.search(r"log-loss ([\d.]+)", ax.get_title(loc="left"))[1]) for ax in seen.axes)
    assert bayes < likely / 10


@claim
def table_encoder(seen):
    assert [each.category for each in seen["caught"]] == [po.ColumnWarning]
    found = seen["model"][0].describe()
    assert list(found.index[found["dropped"] != ""]) == ["order_id", "currency"]
    assert len(seen["weights"]) == 12 == len(seen["model"][0].get_feature_names_out())
    assert len(found) == 6


@claim
def streaming(seen):
    assert seen["difference"] < 1e-6
    assert not Path(seen["folder"].name).exists()


@claim
def outliers(seen):
    model = seen["model"]
    assert model.predict_proba(seen["strange"]).max(axis=1).min() > 0.95
    assert model.score_samples(seen["strange"]).max() < model.score_samples(seen["X"]).min()


@claim
def partial_pooling(seen):
    counted, pooled = (np.abs(seen[name] - seen["truth"]).mean() for name in ("share", "pooled"))
    assert pooled < 0.75 * counted


def holds(name):
    seen = Seen(name)
    assert len(seen.alternative().split()) >= 5
    CLAIMS[name](seen)


def test_an_example_says_what_holds():
    """The first guard of those below."""
    holds("intervals")


def test_each_example_has_a_claim():
    assert set(CLAIMS) == set(EXAMPLES)


@pytest.mark.slow
@each_example
def test_what_an_example_says_holds(name):
    if "DeepGPClassifier" in EXAMPLES[name].read_text("utf-8"):
        pytest.importorskip("jax")
    holds(name)
