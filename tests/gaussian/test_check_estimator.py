"""scikit-learn's own list of what an estimator owes its users, for every kind of covariance and estimate."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior


@pytest.mark.filterwarnings("ignore::posteriori.SingularWarning")
@parametrize_with_checks(
    [
        GaussianClassifier(),
        GaussianClassifier(estimate="map"),
        GaussianClassifier(estimate="mle"),
        GaussianClassifier(prior="evidence"),
        GaussianClassifier("full", prior=NormalInverseWishartPrior()),
        GaussianClassifier("full", estimate="map", prior=RidgePrior()),
        GaussianClassifier("tied"),
        GaussianClassifier("diagonal"),
        GaussianClassifier("full", estimate="mle"),
        GaussianClassifier("spherical", estimate="mle"),
    ]
)
def test_sklearn_compatible(estimator, check):
    check(estimator)
