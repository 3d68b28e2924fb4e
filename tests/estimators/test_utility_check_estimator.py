"""scikit-learn's own list of what an estimator owes its users, with the zero-one utility."""

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from posteriori import GaussianClassifier, UtilityClassifier


@parametrize_with_checks(
    [UtilityClassifier(LogisticRegression()), UtilityClassifier(GaussianClassifier("tied", estimate="map"))]
)
def test_sklearn_compatible(estimator, check):
    check(estimator)
