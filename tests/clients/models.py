"""Fits the models that the clients ask, and writes what the library itself says of some rows: `models.py FOLDER`.

It runs in the environment of the library, which that of the clients cannot share.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

import posteriori as po

LEVEL = 0.8
UTILITY = {
    "states": ["Adelie", "Chinstrap", "Gentoo"],
    "actions": ["keep", "release"],
    "matrix": [[1.0, -2.0], [-5.0, 3.0], [0.5, 0.25]],
}


def main(folder: Path) -> None:
    penguins = pd.read_csv(Path(po.__file__).parent / "tables" / "bundled" / "penguins.csv")
    model = make_pipeline(po.TableEncoder(), po.BayesianSoftmaxRegression()).fit(penguins, "species")
    old = make_pipeline(po.TableEncoder(), po.SoftmaxRegression(alpha=100.0)).fit(penguins, "species")
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 40)
    matrix = po.GaussianClassifier().fit(rng.normal(size=(120, 4)) + y[:, None], y)
    for name, fitted in (("new", model), ("old", old), ("matrix", matrix)):
        po.save(fitted, folder / f"{name}.model")

    some = penguins.drop(columns="species").iloc[3::7].reset_index(drop=True)
    encoded = model[0].transform(some)
    lower, upper = model[1].predict_interval(encoded, LEVEL)
    utility = po.Utility(UTILITY["matrix"], UTILITY["states"], UTILITY["actions"])
    decided = po.decide(model.predict_proba(some), utility, classes=model.classes_)
    X = rng.normal(size=(5, 4))
    said = {
        "rows": json.loads(some.to_json(orient="records")),
        "class": model.predict(some).tolist(),
        "proba": model.predict_proba(some).tolist(),
        "old proba": old.predict_proba(some).tolist(),
        "level": LEVEL,
        "lower": lower.tolist(),
        "upper": upper.tolist(),
        "total": model[1].uncertainty(encoded).total.tolist(),
        "utility": UTILITY,
        "action": decided.actions.tolist(),
        "expected utility": decided.expected_utility.tolist(),
        "matrix": X.tolist(),
        "matrix class": matrix.predict(X).tolist(),
        "matrix proba": matrix.predict_proba(X).tolist(),
        "version": po.__version__,
    }
    (folder / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
