"""scikit-learn's own list of what an estimator owes its users."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from posteriori import SoftmaxRegression


def impossible(estimator):
    """Without an intercept no classifier is linear in x and near constant; scikit-learn's own fail here too."""
    reason = "needs 87 % of uncentred rows on one side of a plane through the origin"
    return {} if estimator.fit_intercept else {"check_class_weight_classifiers": reason}


@parametrize_with_checks([SoftmaxRegression()])
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::posteriori.SeparationWarning")
@parametrize_with_checks(
    [
        SoftmaxRegression(alpha=0.0),
        SoftmaxRegression(solver="lbfgs"),
        SoftmaxRegression(solver="newton"),
        SoftmaxRegression(penalize_intercept=True),
        SoftmaxRegression(fit_intercept=False),
    ],
    expected_failed_checks=impossible,
)
def test_sklearn_compatible_with_other_settings(estimator, check):
    check(estimator)
