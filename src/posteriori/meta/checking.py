"""A fitted model checked against labelled rows: whether its posterior gives labels like those observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from posteriori.rows.engines import label_vector, read_labels, without_column

if TYPE_CHECKING:
    from posteriori.decision.replication import PosteriorCheck

__all__ = ["posterior_check"]


def posterior_check(
    model: Any, X: Any, y: Any, n_draws: int = 500, *, sample_weight: Any = None, random_state: Any = None
) -> PosteriorCheck:
    """Replicate the labels of rows under draws from the posterior, and compare them with the labels observed.

    Parameters
    ----------
    model : fitted classifier with a posterior, or a Pipeline that ends with one
        BayesianSoftmaxRegression, GaussianClassifier with estimate="bayes", or GPClassifier.
    X : rows, as for the model's `predict_proba`
        May hold the columns that y and sample_weight name. Rows of the fit are known to it: where it is too sure or too
        timid shows better in rows that it has not seen.
    y : labels (n,), or the name of a column of X
    n_draws : int, default 500
        Draws, each of the labels of all rows. It holds n_draws x n x K numbers.
    sample_weight : numbers (n,), or the name of a column of X, optional
        By which rows count. A row of weight two is one label that counts twice, not two labels.
    random_state : int, RandomState or None
        None draws the same ones each time.

    Returns
    -------
    PosteriorCheck
        The observed number, the replicated numbers and the tail probability of each statistic.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianClassifier("tied").fit(X[::2], y[::2])
    >>> check = posterior_check(model, X[1::2], y[1::2])
    >>> round(check["accuracy"].observed, 3), 0.05 < check["accuracy"].tail_probability < 0.95
    (0.973, True)
    """
    labels, weights = label_vector(read_labels(X, y)), read_labels(X, sample_weight)
    if hasattr(model, "steps"):
        X = without_column(without_column(X, y), sample_weight)
        model, X = model[-1], model[:-1].transform(X)
    if not hasattr(model, "posterior_check"):
        raise TypeError(
            f"posterior_check needs draws from a posterior, and {type(model).__name__} offers none: pass a "
            "BayesianSoftmaxRegression, a GaussianClassifier with estimate='bayes', a GPClassifier, or the estimator "
            "that another classifier wraps."
        )
    return model.posterior_check(X, labels, n_draws, sample_weight=weights, random_state=random_state)
