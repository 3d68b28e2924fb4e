"""scikit-learn's own list of what an estimator owes its users."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from posteriori import BoostingClassifier, ForestClassifier


@parametrize_with_checks(
    [ForestClassifier(12), ForestClassifier(12, min_leaf=2, max_features=0.5), BoostingClassifier(8)]
)
def test_sklearn_compatible(estimator, check):
    check(estimator)
