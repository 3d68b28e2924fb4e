"""scikit-learn's own list of what an estimator owes its users, for every structure and estimate."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior
from posteriori.models.gaussian import STRUCTURES


@pytest.mark.filterwarnings("ignore::posteriori.SingularWarning")
@parametrize_with_checks(
    [
        GaussianClassifier(),
        GaussianClassifier(estimate="map"),
        GaussianClassifier(estimate="mle"),
        GaussianClassifier(prior="evidence"),
        GaussianClassifier("full", prior=NormalInverseWishartPrior()),
        GaussianClassifier("full", estimate="map", prior=RidgePrior()),
        *(GaussianClassifier(structure) for structure in STRUCTURES),
        *(GaussianClassifier(structure, estimate="mle") for structure in STRUCTURES),
    ]
)
def test_sklearn_compatible(estimator, check):
    check(estimator)
