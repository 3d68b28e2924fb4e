"""scikit-learn's own list of what an estimator owes its users, for the Bayesian one."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from posteriori import BayesianSoftmaxRegression, GaussianPrior


def impossible(estimator):
    """Checks that no estimator with these settings can pass."""
    failed = {}
    if not estimator.fit_intercept:
        failed["check_class_weight_classifiers"] = "needs 87 % of uncentred rows on one side of a plane through 0"
    if estimator.prior in ("flat", "jeffreys"):
        # 15 rows of 30 columns
        for kind in ("dense", "sparse"):
            failed[f"check_sample_weight_equivalence_on_{kind}_data"] = "has more parameters than rows"
    return failed


pytestmark = [
    pytest.mark.filterwarnings("ignore::posteriori.ApproximationWarning"),
    pytest.mark.filterwarnings("ignore::posteriori.ConvergenceWarning"),
]


@parametrize_with_checks([BayesianSoftmaxRegression()])
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        BayesianSoftmaxRegression(prior=1.0, approximation="laplace"),
        BayesianSoftmaxRegression(prior="flat", predictive="plugin"),
        BayesianSoftmaxRegression(prior="jeffreys"),
        BayesianSoftmaxRegression(prior=GaussianPrior(autoscale=True), predictive="sample", n_draws=50),
        BayesianSoftmaxRegression(prior=1.0, approximation="variational", predictive="probit"),
        BayesianSoftmaxRegression(prior=1.0, posterior="kronecker", predictive="plugin"),
        BayesianSoftmaxRegression(fit_intercept=False),
    ],
    expected_failed_checks=impossible,
)
def test_sklearn_compatible_with_other_settings(estimator, check):
    check(estimator)
