"""scikit-learn's own list of what an estimator owes its users, for every kind of covariance and estimate.

One stands for all; the others, which may seek a prior in each of some hundred fits, are slow.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior

GIVEN = NormalInverseWishartPrior()
ignore_ridges = pytest.mark.filterwarnings("ignore::posteriori.SingularWarning")


@ignore_ridges
@parametrize_with_checks([GaussianClassifier(prior=GIVEN)])
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.slow
@ignore_ridges
@parametrize_with_checks(
    [
        GaussianClassifier(),
        GaussianClassifier("full", estimate="map", prior=RidgePrior()),
        GaussianClassifier("tied_diagonal", estimate="mle"),
        GaussianClassifier(estimate="map"),
        GaussianClassifier(prior="evidence"),
        GaussianClassifier("tied"),
        GaussianClassifier("diagonal"),
        GaussianClassifier(estimate="map", prior=GIVEN),
        GaussianClassifier(estimate="mle"),
        GaussianClassifier("full", prior=GIVEN),
        GaussianClassifier("full", estimate="mle"),
        GaussianClassifier("spherical", estimate="mle"),
    ]
)
def test_sklearn_compatible_with_all_settings(estimator, check):
    check(estimator)
