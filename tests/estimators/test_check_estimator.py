"""scikit-learn's own list of what an estimator owes its users, without exceptions."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from posteriori import SoftmaxRegression


@parametrize_with_checks(
    [
        SoftmaxRegression(),
        SoftmaxRegression(alpha=0.0),
        SoftmaxRegression(solver="lbfgs"),
        SoftmaxRegression(solver="newton"),
        SoftmaxRegression(penalize_intercept=True),
        SoftmaxRegression(fit_intercept=False),
    ]
)
def test_sklearn_compatible(estimator, check):
    check(estimator)
