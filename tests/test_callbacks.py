"""Callbacks of scikit-learn on iterative fits, and fits without them where the installed version has none."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posteriori as po

X, Y = load_iris(return_X_y=True)
TABLE = pd.DataFrame(X, columns=list("abcd")).assign(kind=Y, w=1.0 + np.arange(150) % 2)


@pytest.mark.slow
def test_without_callbacks_in_scikit_learn_fits_are_as_ever():
    script = """
    import sys
    import sklearn.linear_model
    sys.modules["sklearn.callback"] = None
    import posteriori as po
    from sklearn.datasets import load_iris
    X, y = load_iris(return_X_y=True)
    for model in (po.SoftmaxRegression(), po.BayesianSoftmaxRegression(1.0), po.GPClassifier(max_iter=0)):
        assert not hasattr(model, "set_callbacks")
        assert model.fit(X, y).score(X, y) > 0.9
    """
    home = str(Path(po.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([home, *sys.path])}
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], check=True, env=environment)


callback = pytest.importorskip("sklearn.callback") if "sklearn.callback" in sys.modules else None
needs_callbacks = pytest.mark.skipif(callback is None, reason="scikit-learn before 1.9 has no callbacks")


class Witness:
    """A callback that remembers what it is told."""

    def __init__(self):
        self.events, self.models = [], []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"{context.task_name} begins")

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None):
        self.events.append(f"{context.task_name} ends")
        self.given = X, y, metadata
        if fitted_estimator is not None:
            self.models.append(fitted_estimator)


@needs_callbacks
@pytest.mark.parametrize("solver", ["auto", "newton", "lbfgs", "gd"])
@pytest.mark.filterwarnings("ignore:Not converged")
def test_every_iteration_has_a_model_of_its_own(solver):
    witness = Witness()
    model = po.SoftmaxRegression(solver=solver, max_iter=40).set_callbacks(witness).fit(X, Y)
    n = len(witness.models)
    assert n >= model.n_iter_ > 1
    assert witness.events == [
        "setup",
        "fit begins",
        *["iteration begins", "iteration ends"] * n,
        "fit ends",
        "teardown",
    ]
    losses = [log_loss(Y, each.predict_proba(X)) for each in witness.models]
    assert losses[-1] < losses[0]
    assert losses[-1] == pytest.approx(log_loss(Y, model.predict_proba(X)), rel=0.02)
    penalised = [-150 * -loss + 0.5 * (each.coef_**2).sum() for loss, each in zip(losses, witness.models, strict=True)]
    assert min(penalised) == pytest.approx(model.solution_.objective, rel=1e-6 if solver != "gd" else 0.02)


@needs_callbacks
def test_scores_are_monitored_of_tables_with_their_target_and_weights():
    monitor = callback.ScoringMonitor(scoring="neg_log_loss")
    model = po.SoftmaxRegression(solver="newton").set_callbacks(monitor)
    model.fit(TABLE, "kind", "w")
    scores = monitor.get_logs().data_as_pandas["neg_log_loss"].dropna()
    assert len(scores) >= model.n_iter_
    expected = -log_loss(Y, model.predict_proba(TABLE), sample_weight=TABLE["w"])
    assert scores.iloc[-1] == pytest.approx(expected, rel=1e-4)


@needs_callbacks
@pytest.mark.parametrize("model", [po.BayesianSoftmaxRegression(1.0), po.GPClassifier()], ids=["softmax", "gp"])
def test_posteriors_are_counted_and_not_scored(model):
    witness = Witness()
    clone(model).set_callbacks(witness).fit(X, Y)
    assert witness.events[:2] == ["setup", "fit begins"]
    assert witness.events[-2:] == ["fit ends", "teardown"]
    assert witness.events.count("iteration ends") > 3
    assert witness.models == []
    np.testing.assert_array_equal(witness.given[1], Y)
    assert witness.given[2] is None


@needs_callbacks
def test_a_watched_fit_is_the_same_fit():
    plain = po.GPClassifier(random_state=1).fit(X, Y).predict_proba(X)
    watched = po.GPClassifier(random_state=1).set_callbacks(Witness()).fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(plain, watched)


@needs_callbacks
def test_pipelines_pass_their_callbacks_on():
    bar = callback.ProgressBar()
    model = make_pipeline(StandardScaler(), po.SoftmaxRegression()).set_callbacks(bar)
    assert model.fit(X, Y).score(X, Y) > 0.9
    assert not hasattr(model[-1], "_skl_callbacks")


@needs_callbacks
def test_callbacks_are_ended_where_a_fit_fails():
    class Failing(Witness):
        def on_fit_task_begin(self, estimator, context):
            super().on_fit_task_begin(estimator, context)
            if context.task_id == 2:
                raise RuntimeError("enough")

    witness = Failing()
    with pytest.raises(RuntimeError, match="enough"):
        po.SoftmaxRegression().set_callbacks(witness).fit(X, Y)
    assert witness.events[0] == "setup"
    assert witness.events[-2:] == ["iteration begins", "teardown"]


@needs_callbacks
def test_files_hold_no_callbacks(tmp_path):
    model = po.SoftmaxRegression().set_callbacks(Witness()).fit(X, Y)
    po.save(model, tmp_path / "m.model")
    again = po.load(tmp_path / "m.model")
    assert not hasattr(again, "_skl_callbacks")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_warnings_point_to_the_line_of_the_user():
    """Callbacks put a function between the user and `fit`."""
    X, y = np.arange(8.0)[:, None], np.repeat([0, 1], 4)
    for model in (po.SoftmaxRegression(0.0), po.BayesianSoftmaxRegression("flat")):
        with pytest.warns(po.SeparationWarning) as caught:
            model.fit(X, y)
        assert caught[0].filename == __file__
    with pytest.warns(po.ConvergenceWarning) as caught:
        po.GPClassifier(max_iter=1).fit(X + np.sin(X), [0, 1] * 4)
    assert caught[0].filename == __file__
