"""A process that times one classifier on a stored split: ``python -m benchmarks.gp_time_process METHOD FOLDER``.

The folder has split.npz: X, y to fit, `new` to predict. Left in it are P.npy, class probabilities of the new rows, and
said.json: seconds to import the library, to fit, and to predict. What a library imports or compiles only when it fits
or predicts is part of these. Only what METHOD needs is imported.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

EPOCHS = 100
"""Of GPflow."""

Predict = Callable[["np.ndarray"], "np.ndarray"]
Fit = Callable[["np.ndarray", "np.ndarray"], Predict]


def ours() -> Fit:
    import posteriori as po

    make = po.GPClassifier  # a name of the package is imported when it is asked for
    return lambda X, y: make().fit(X, y).predict_proba


def sklearn(*, wide: bool = False) -> Fit:
    """Begin at a lengthscale of one, or at the root of the number of columns: about as far as rows are apart."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def fit(X: np.ndarray, y: np.ndarray) -> Predict:
        kernel = ConstantKernel(1.0) * RBF(X.shape[1] ** 0.5 if wide else 1.0)
        model = GaussianProcessClassifier(kernel, multi_class="one_vs_rest", n_jobs=1, random_state=0)
        return make_pipeline(StandardScaler(), model).fit(X, y).predict_proba

    return fit


def gpflow() -> Fit:
    from benchmarks.gp_flow import Training
    from benchmarks.gp_process import trained

    return lambda X, y: trained(Training, X, y, EPOCHS)[0]


METHODS: dict[str, Callable[[], Fit]] = {
    "GPClassifier": ours,
    "scikit-learn": sklearn,
    "scikit-learn, wide": lambda: sklearn(wide=True),
    "GPflow SVGP": gpflow,
}
"""Functions that import what a method needs, and return how it fits."""


def main(method: str, folder: Path) -> None:
    """Read, import, fit, predict, write."""
    import numpy as np

    with np.load(folder / "split.npz") as split:
        X, y, new = (split[name] for name in ("X", "y", "new"))
    warnings.simplefilter("ignore")
    clock = [perf_counter()]
    fit = METHODS[method]()
    clock.append(perf_counter())
    predict = fit(X, y)
    clock.append(perf_counter())
    P = predict(new)
    clock.append(perf_counter())
    np.save(folder / "P.npy", P)
    seconds = dict(zip(("import_seconds", "fit_seconds", "predict_seconds"), np.diff(clock).tolist(), strict=True))
    (folder / "said.json").write_text(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
