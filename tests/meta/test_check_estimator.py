"""scikit-learn's own list of what an estimator owes its users, for classifiers around classifiers."""

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from posteriori import CalibratedClassifier, ConformalClassifier, GaussianClassifier, UtilityClassifier


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Hundreds of tiny fits: threads would wait for each other far longer than they work."""
    with threadpool_limits(1):
        yield


@parametrize_with_checks(
    [
        UtilityClassifier(LogisticRegression()),  # with the zero-one utility
        CalibratedClassifier(LogisticRegression(), cv=2),
        CalibratedClassifier(LogisticRegression(), method="auto", cv=2),
        ConformalClassifier(LogisticRegression()),
    ]
)
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        UtilityClassifier(GaussianClassifier("tied", estimate="map")),
        *(
            CalibratedClassifier(LogisticRegression(), method=method, cv=2)
            for method in ("vector", "dirichlet", "isotonic")
        ),
    ]
)
def test_other_methods_are_sklearn_compatible(estimator, check):
    check(estimator)
