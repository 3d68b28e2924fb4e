"""Small data and models that storage is tested with."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posteriori as po
from posteriori.tables.encoder import TableEncoder

_ROWS = np.r_[0:14, 50:63, 100:113]
_X, _y = load_iris(return_X_y=True)
X: np.ndarray = _X[_ROWS]
Y: np.ndarray = np.array(["setosa", "versicolor", "virginica"])[_y[_ROWS]]
TABLE = pd.DataFrame(X, columns=["sepal_length", "sepal_width", "petal_length", "petal_width"])
GAPS = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)

SMALL = {"n_inducing": 8, "max_iter": 10}


def messy() -> pd.DataFrame:
    """Numbers with gaps, a category, dates and the target."""
    table = TABLE.assign(
        colour=np.array(["red", "blue", None, "green"], dtype=object)[np.arange(40) % 4],
        day=pd.date_range("2024-01-01", periods=40, freq="9D"),
        species=Y,
    )
    table.loc[3, "sepal_width"] = np.nan
    return table


def fitted(model: Any, rows: Any = X, target: Any = Y) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows, target)


def golden() -> dict[str, Any]:
    """One fitted model of each estimator, by name."""
    utility = po.Utility([[1, 0, 0.4], [0, 1, 0.4], [-3, 1, 0.4]], sorted(set(Y)), ["pick", "leave", "ask"])
    encoded = make_pipeline(TableEncoder(), po.SoftmaxRegression())
    return {
        "softmax": fitted(po.SoftmaxRegression(), TABLE),
        "bayesian": fitted(po.BayesianSoftmaxRegression(approximation="laplace")),
        "gaussian": fitted(po.GaussianClassifier("full")),
        "gp": fitted(po.GPClassifier(**SMALL)),
        "deep_gp": fitted(po.DeepGPClassifier(**SMALL)),
        "utility": fitted(po.UtilityClassifier(po.SoftmaxRegression(), utility)),
        "calibrated": fitted(po.CalibratedClassifier(po.SoftmaxRegression(), cv=3)),
        "conformal": fitted(po.ConformalClassifier(po.SoftmaxRegression(), calibration_size=12)),
        "pipeline": fitted(make_pipeline(StandardScaler(), po.SoftmaxRegression())),
        "table": fitted(encoded, messy(), "species"),
        "forest": fitted(po.ForestClassifier(20), GAPS),
        "boosting": fitted(po.BoostingClassifier(10), GAPS),
        "stack": fitted(po.StackedClassifier([po.SoftmaxRegression(), po.GaussianClassifier("tied")])),
    }


def rows_of(name: str) -> Any:
    """The rows that the model of this name predicts."""
    return {"softmax": TABLE, "table": messy(), "forest": GAPS, "boosting": GAPS}.get(name, X)[::4]
