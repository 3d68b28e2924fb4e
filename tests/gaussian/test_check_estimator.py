"""scikit-learn's own list of what an estimator owes its users, for every kind of covariance and estimate.

Estimators that seek a prior in each of some hundred fits are slow, the default included.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior

GIVEN = NormalInverseWishartPrior()
ignore_ridges = pytest.mark.filterwarnings("ignore::posteriori.SingularWarning")


@ignore_ridges
@parametrize_with_checks(
    [
        GaussianClassifier(prior=GIVEN),
        GaussianClassifier(estimate="map", prior=GIVEN),
        GaussianClassifier(estimate="mle"),
        GaussianClassifier("full", prior=GIVEN),
        GaussianClassifier("full", estimate="map", prior=RidgePrior()),
        GaussianClassifier("tied_diagonal", prior=GIVEN),
        GaussianClassifier("full", estimate="mle"),
        GaussianClassifier("spherical", estimate="mle"),
    ]
)
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.slow
@ignore_ridges
@parametrize_with_checks(
    [
        GaussianClassifier(),
        GaussianClassifier(estimate="map"),
        GaussianClassifier(prior="evidence"),
        GaussianClassifier("tied"),
        GaussianClassifier("diagonal"),
    ]
)
def test_sklearn_compatible_where_priors_are_sought(estimator, check):
    check(estimator)
