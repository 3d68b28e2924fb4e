"""scikit-learn's own tools around our classifiers: searches, ensembles, inspection, selection, copies."""

import copy
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFE, SelectFromModel, SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import DecisionBoundaryDisplay, partial_dependence, permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    learning_curve,
    validation_curve,
)
from sklearn.multiclass import OneVsRestClassifier, OutputCodeClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import get_tags

import posteriori as po

IRIS, KIND = load_iris(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(150)
X, Y = IRIS[ORDER], KIND[ORDER]
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
TABLE = pd.DataFrame(X, columns=NAMES)
GP = pytest.param("gp", marks=pytest.mark.slow)

MODELS = {
    "softmax": lambda: po.SoftmaxRegression(),
    "bayes": lambda: po.BayesianSoftmaxRegression(1.0, approximation="laplace"),
    "gaussian": lambda: po.GaussianClassifier("tied", estimate="map", prior=po.NormalInverseWishartPrior()),
    "gp": lambda: po.GPClassifier(n_inducing=8, max_iter=5),
    "calibrated": lambda: po.CalibratedClassifier(po.SoftmaxRegression(), cv=KFold(3)),
    "conformal": lambda: po.ConformalClassifier(po.SoftmaxRegression()),
    "utility": lambda: po.UtilityClassifier(po.SoftmaxRegression()),
}
QUICK = [name for name in MODELS if name != "gp"]
FAMILIES = ["softmax", "bayes", "gaussian", GP]
GRIDS = {
    "softmax": {"alpha": [0.1, 10.0], "solver": [po.Newton(), po.LBFGS()], "solver__tol": [1e-4, 1e-9]},
    "bayes": {"prior": [po.GaussianPrior()], "prior__precision": [0.1, 10.0], "tol": [1e-4, 1e-9]},
    "gaussian": {"prior__kappa": [0.5, 50.0], "covariance": ["tied", "diagonal"]},
    "gp": {"kernel": [po.kernels.RBF()], "kernel__lengthscale": [0.5, 5.0]},
}


# Searches


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_grid_search_in_two_processes_over_solvers_and_priors(name):
    search = GridSearchCV(MODELS[name](), GRIDS[name], cv=2, n_jobs=2, scoring="neg_log_loss", error_score="raise")
    search.fit(X, Y)
    alone = GridSearchCV(MODELS[name](), GRIDS[name], cv=2, scoring="neg_log_loss", error_score="raise").fit(X, Y)
    for key in ("split0_test_score", "split1_test_score"):
        np.testing.assert_allclose(search.cv_results_[key], alone.cv_results_[key], rtol=1e-6)
    assert np.ptp(search.cv_results_["mean_test_score"]) > 1e-4  # the settings have been set
    by_hand = clone(MODELS[name]()).set_params(**search.best_params_).fit(X, Y)
    np.testing.assert_allclose(search.predict_proba(X), by_hand.predict_proba(X), rtol=1e-6)


def test_random_and_halving_searches():
    distribution = {"alpha": stats.loguniform(1e-3, 1e3)}
    random = RandomizedSearchCV(po.SoftmaxRegression(), distribution, n_iter=4, cv=2, random_state=0).fit(X, Y)
    assert 1e-3 <= random.best_params_["alpha"] <= 1e3
    grid = {"estimator__alpha": [1e-4, 1e-2, 1.0, 1e4]}
    halving = HalvingGridSearchCV(MODELS["calibrated"](), grid, cv=2, random_state=0, min_resources=30).fit(X, Y)
    assert halving.best_params_["estimator__alpha"] < 1e4
    assert halving.n_iterations_ > 1


def test_searches_over_what_is_inside():
    model = make_pipeline(po.TableEncoder(), MODELS["utility"]())
    grid = {"utilityclassifier__estimator__alpha": [0.1, 10.0], "utilityclassifier__utility": [None]}
    search = GridSearchCV(model, grid, cv=2).fit(TABLE, Y)
    assert search.best_score_ > 0.9
    alphas = [0.01, 1.0]
    _, scores = validation_curve(model, TABLE, Y, param_name="utilityclassifier__estimator__alpha", param_range=alphas)
    assert scores.shape == (2, 5)


# Ensembles


@pytest.mark.parametrize("name", QUICK)
def test_inside_ensembles(name):
    model = MODELS[name]()
    pair = [("ours", model), ("theirs", LogisticRegression(max_iter=500))]
    voting = VotingClassifier(pair, voting="soft").fit(X, Y)
    expected = (clone(model).fit(X, Y).predict_proba(X) + pair[1][1].fit(X, Y).predict_proba(X)) / 2
    np.testing.assert_allclose(voting.predict_proba(X), expected, atol=1e-10)
    stacking = StackingClassifier(pair, final_estimator=po.SoftmaxRegression(), cv=3).fit(X, Y)
    bagging = BaggingClassifier(model, n_estimators=3, random_state=0).fit(X, Y)
    calibrated = CalibratedClassifierCV(model, cv=3).fit(X, Y)
    for each in (stacking, bagging, calibrated):
        assert log_loss(Y, each.predict_proba(X)) < 0.45
    single = OneVsRestClassifier(model).fit(X, Y)
    assert single.score(X, Y) > 0.85
    two = clone(model).fit(X, (Y == 2).astype(int)).predict_proba(X)[:, 1]
    np.testing.assert_allclose(single.estimators_[2].predict_proba(X)[:, 1], two, atol=1e-10)


@pytest.mark.parametrize("name", QUICK)
def test_around_fitted_models_and_with_thresholds(name):
    two = (Y == 2).astype(int)
    tuned = TunedThresholdClassifierCV(MODELS[name](), cv=3).fit(X, two)
    assert tuned.score(X, two) > 0.9
    frozen = FrozenEstimator(MODELS[name]().fit(X[:75], Y[:75]))
    model = po.CalibratedClassifier(frozen, cv=3).fit(X[75:], Y[75:], sample_weight=np.ones(75))
    assert model.estimator_.estimator is frozen.estimator  # what was fitted stays as it was
    assert log_loss(Y[75:], model.predict_proba(X[75:])) < log_loss(Y[75:], frozen.predict_proba(X[75:])) + 0.02


def test_log_odds_of_two_classes():
    two = (Y == 2).astype(int)
    for name in QUICK:
        model = MODELS[name]().fit(X, two)
        P = model.predict_proba(X)
        np.testing.assert_allclose(model.decision_function(X), np.log(P[:, 1] / P[:, 0]), rtol=1e-6, atol=1e-9)


def test_codes_of_classes():
    model = OutputCodeClassifier(po.SoftmaxRegression(), code_size=2, random_state=0).fit(X, Y)
    assert model.score(X, Y) > 0.8


def test_bagging_draws_columns_and_rows_of_tables():
    model = BaggingClassifier(po.SoftmaxRegression(), 3, max_features=2, random_state=0).fit(TABLE, Y)
    assert model.score(TABLE, Y) > 0.8


# Inspection


@pytest.mark.parametrize("name", [*QUICK, GP])
def test_permutation_importance_and_partial_dependence(name):
    model = MODELS[name]().fit(TABLE, Y)
    found = permutation_importance(model, TABLE, Y, n_repeats=2, random_state=0)
    assert found.importances_mean.shape == (4,)
    assert found.importances_mean[2:].max() > found.importances_mean[:2].max()  # petals tell more than sepals
    grid = partial_dependence(model, TABLE, ["petal length"], grid_resolution=5, response_method="predict_proba")
    assert grid["average"].shape == (3, 5)
    assert grid["average"][0, 0] > grid["average"][0, -1]  # short petals are of the first kind
    by_hand = TABLE.assign(**{"petal length": grid["grid_values"][0][0]})
    np.testing.assert_allclose(grid["average"][:, 0], model.predict_proba(by_hand).mean(axis=0), atol=1e-10)


@pytest.mark.parametrize("name", [*QUICK, GP])
@pytest.mark.parametrize("response", ["predict", "predict_proba"])
def test_decision_boundaries(name, response):
    plt = pytest.importorskip("matplotlib.pyplot")
    model = MODELS[name]().fit(TABLE[NAMES[2:]], Y)
    shown = DecisionBoundaryDisplay.from_estimator(model, TABLE[NAMES[2:]], response_method=response, grid_resolution=8)
    assert shown.response.shape[:2] == (8, 8)
    plt.close("all")


def test_learning_curves_and_left_out_predictions():
    _, _, scores = learning_curve(po.SoftmaxRegression(), X, Y, cv=3, train_sizes=[0.3, 1.0], scoring="neg_log_loss")
    assert scores[1].mean() > scores[0].mean()
    for name in QUICK:
        model = MODELS[name]()
        for method in ("predict_proba", "predict_log_proba", "decision_function"):
            values = cross_val_predict(model, X, Y, cv=3, method=method)
            assert values.shape == (150, 3)
            assert (values.argmax(axis=1) == Y).mean() > 0.9


# Selection of features and composition


def test_features_are_selected_by_coefficients():
    Z = StandardScaler().fit_transform(X)
    noisy = np.column_stack([Z, np.random.default_rng(0).normal(size=(150, 3))])
    for name in ("softmax", "bayes"):
        ranked = RFE(MODELS[name](), n_features_to_select=2).fit(noisy, Y)
        assert ranked.support_[:4].sum() == 2
        assert SelectFromModel(MODELS[name](), threshold="median").fit(noisy, Y).get_support()[2:4].all()
    forward = SequentialFeatureSelector(MODELS["gaussian"](), n_features_to_select=1, cv=2).fit(noisy, Y)
    assert forward.get_support()[2:4].sum() == 1


def test_a_table_encoder_among_other_transformers():
    table = TABLE.assign(colour=np.array(["red", "blue", None, "green"], dtype=object)[Y + (X[:, 0] > 6)])
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), NAMES[:2]), ("rest", po.TableEncoder(), [*NAMES[2:], "colour"])]
    )
    model = make_pipeline(columns, po.SoftmaxRegression()).fit(table, Y)
    assert model.score(table, Y) > 0.95
    union = FeatureUnion([("table", po.TableEncoder()), ("log", FunctionTransformer(lambda t: np.log(t[NAMES])))])
    Z = union.fit_transform(table, Y)
    width = po.TableEncoder().fit(table).transform(table).shape[1]
    assert Z.shape == (150, width + 4)
    assert make_pipeline(union, po.SoftmaxRegression()).fit(table, Y).score(table, Y) > 0.95


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_set_output(kind):
    pytest.importorskip(kind)
    table = TABLE.assign(colour=np.array(["red", "blue", "green"])[Y])
    table.index = np.arange(1000, 1150)
    plain = po.TableEncoder().fit(table)
    columns = ColumnTransformer([("all", po.TableEncoder(), list(table))], verbose_feature_names_out=False)
    for transformer in (po.TableEncoder(), columns):
        Z = transformer.set_output(transform=kind).fit(table).transform(table)
        assert type(Z).__module__.startswith(kind)
        assert list(Z.columns) == list(plain.get_feature_names_out())
        if kind == "pandas":
            assert list(Z.index) == list(table.index)
    model = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).set_output(transform=kind).fit(table, Y)
    assert list(model[-1].feature_names_in_) == list(plain.get_feature_names_out())


# Copies


@pytest.mark.parametrize("name", [*QUICK, GP])
def test_copies_predict_the_same(name, tmp_path):
    model = MODELS[name]().fit(TABLE, Y)
    joblib.dump(model, tmp_path / "model.joblib")
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")]
    for each in copies:
        np.testing.assert_array_equal(each.predict_proba(TABLE), model.predict_proba(TABLE))
        assert list(each.feature_names_in_) == NAMES
        assert each.get_params(deep=False).keys() == model.get_params(deep=False).keys()


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_read_set_and_cloned_in_depth(name):
    model = MODELS[name]()
    params = model.get_params(deep=True)
    assert set(model.get_params(deep=False)) <= set(params)
    for key, value in params.items():
        other = clone(model).set_params(**{key: value})
        assert other.get_params()[key] is value or other.get_params()[key] == value
    for key, value in clone(model).get_params(deep=True).items():
        assert repr(value) == repr(params[key])
    with pytest.raises(ValueError, match="nonsense"):
        model.set_params(nonsense=1)


@pytest.mark.parametrize("name", MODELS)
def test_shown_in_notebooks_and_tagged(name):
    model = MODELS[name]()
    for shown in (model, make_pipeline(po.TableEncoder(), model)):
        html = shown._repr_html_()
        assert type(model).__name__ in html
        assert "Not fitted" in html
    assert is_classifier(model)
    tags = get_tags(model)
    assert tags.estimator_type == "classifier"
    assert tags.target_tags.required
    assert tags.classifier_tags.multi_class
    if name != "gp":
        assert "Not fitted" not in model.fit(X, Y)._repr_html_()


def test_tags_of_the_encoder():
    tags = get_tags(po.TableEncoder())
    assert tags.estimator_type == "transformer" or tags.transformer_tags is not None
    assert tags.input_tags.categorical
    assert tags.input_tags.string
    assert tags.input_tags.allow_nan
    assert "TableEncoder" in po.TableEncoder()._repr_html_()
