"""scikit-learn's own list of what an estimator owes its users."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from posteriori import BoostingClassifier, ForestClassifier


@parametrize_with_checks([ForestClassifier(12), BoostingClassifier(8)])
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([ForestClassifier(12, min_leaf=2, max_features=0.5), BoostingClassifier(), ForestClassifier()])
def test_sklearn_compatible_with_other_settings(estimator, check):
    check(estimator)
