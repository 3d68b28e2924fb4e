"""Priors on Gaussian classes as a user states them: refused in clear words, and the same in any units."""

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from tests.gaussian.naive_gaussian import shape

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior
from posteriori.gaussian.densities import class_densities, log_joint
from posteriori.gaussian.niw import updated
from posteriori.gaussian.statistics import class_statistics
from posteriori.gaussian.structures import STRUCTURES

D = 3
PSI = np.array([[2.0, 0.5, -0.3], [0.5, 1.0, 0.2], [-0.3, 0.2, 0.7]])
VARIANCE = np.array([4.0, 0.25, 9.0])
ONES = np.ones(D)
structures = pytest.mark.parametrize("structure", STRUCTURES)


def in_units(prior, structure="full", unit=ONES, variance=VARIANCE):
    return prior.in_units(STRUCTURES[structure], unit, variance)


def default_mean(prior, structure):
    """The covariance that is expected, in the structure's shape, by scipy.stats."""
    if shape(structure) == "full":
        return stats.invwishart(prior.nu, prior.scale).mean()
    return stats.invgamma(prior.nu / 2, scale=prior.scale / 2).mean()


# Defaults


@structures
@pytest.mark.parametrize("more", [0.0, 1.0, 7.5])
def test_covariances_are_expected_to_have_the_variances_of_all_rows(structure, more):
    least = D + 2 if shape(structure) == "full" else 3
    prior = in_units(NormalInverseWishartPrior(nu=least + more if more else None), structure)
    assert prior.nu == least + more
    assert prior.kappa == 1.0
    assert prior.pooled == 0.0
    expected = {"full": np.diag(VARIANCE), "diagonal": VARIANCE, "spherical": VARIANCE.mean()}[shape(structure)]
    np.testing.assert_allclose(default_mean(prior, structure), expected, rtol=1e-12)


@structures
def test_few_degrees_of_freedom_have_no_expectation_but_a_scale(structure):
    """nu - D - 1 is negative: one takes its place."""
    least = D - 1.0 if shape(structure) == "full" else 0.0
    prior = in_units(NormalInverseWishartPrior(nu=least + 0.1), structure)
    expected = {"full": np.diag(VARIANCE), "diagonal": VARIANCE, "spherical": VARIANCE.mean()}[shape(structure)]
    np.testing.assert_allclose(prior.scale, expected, rtol=1e-12)


@structures
def test_constant_columns_are_expected_to_have_some_variance(structure):
    prior = in_units(NormalInverseWishartPrior(), structure, variance=np.zeros(D))
    expected = {"full": np.eye(D), "diagonal": np.ones(D), "spherical": 1.0}[shape(structure)]
    np.testing.assert_array_equal(prior.scale, expected)


@pytest.mark.parametrize(
    ("structure", "scale", "expected"),
    [
        ("full", 2.0, 2.0 * np.eye(D)),
        ("tied", [1.0, 2.0, 3.0], np.diag([1.0, 2.0, 3.0])),
        ("full", PSI, PSI),
        ("tied", PSI.tolist(), PSI),
        ("diagonal", 2, np.full(D, 2.0)),
        ("tied_diagonal", VARIANCE, VARIANCE),
        ("spherical", 2.0, 2.0),
    ],
)
def test_a_scale_is_a_number_variances_or_a_matrix(structure, scale, expected):
    prior = in_units(NormalInverseWishartPrior(kappa=3, nu=4, scale=scale), structure)
    assert prior.kappa == 3.0
    assert prior.nu == 4.0
    np.testing.assert_array_equal(prior.scale, expected)


@pytest.mark.parametrize(
    ("mean", "expected"), [(None, None), (2, [2.0, 2.0, 2.0]), ([1.0, 0.0, -1.0], [1.0, 0.0, -1.0])]
)
def test_a_mean_is_a_number_or_one_for_each_feature(mean, expected):
    origin = NormalInverseWishartPrior(mean=mean).origin(D)
    assert origin is None if expected is None else origin.tolist() == expected


# Units


@structures
@pytest.mark.parametrize("scale", [None, "given"])
def test_densities_are_those_of_the_data_whatever_the_units_of_the_fit(structure, scale):
    """The prior of x / unit belongs to the same belief about x."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, D)) * np.sqrt(VARIANCE), rng.integers(0, 2, 20)
    given = {"full": PSI, "diagonal": VARIANCE / 3, "spherical": 1.7}[shape(structure)]
    prior = NormalInverseWishartPrior(kappa=0.4, nu=5.5, scale=None if scale is None else given)
    found = []
    for unit in (ONES, np.full(D, 0.01) if shape(structure) == "spherical" else np.array([10.0, 1e-3, 5.0])):
        statistics = class_statistics(X / unit, y, None, 2, "full")
        belief = updated(statistics, in_units(prior, structure, unit), STRUCTURES[structure])
        found.append(log_joint(X, class_densities(belief, "bayes", np.zeros(2), np.zeros(D), 1.0 / unit)))
    np.testing.assert_allclose(*found, rtol=1e-11)


@structures
def test_scales_are_divided_by_the_squares_of_units(structure):
    unit = np.full(D, 4.0) if shape(structure) == "spherical" else np.array([2.0, 0.5, 10.0])
    given = {"full": PSI, "diagonal": VARIANCE, "spherical": 3.0}[shape(structure)]
    expected = {"full": PSI / np.outer(unit, unit), "diagonal": VARIANCE / unit**2, "spherical": 3.0 / 16.0}
    found = in_units(NormalInverseWishartPrior(scale=given), structure, unit)
    np.testing.assert_allclose(found.scale, expected[shape(structure)], rtol=1e-14)


# Refusals


WRONG = {
    "no kappa": ({"kappa": 0}, "full", "The prior's kappa is 0: it must be a positive number"),
    "negative kappa": ({"kappa": -1.0}, "full", "The prior's kappa is -1.0: it must be a positive number"),
    "NaN kappa": ({"kappa": np.nan}, "diagonal", "The prior's kappa is nan: it must be a positive number"),
    "infinite kappa": ({"kappa": np.inf}, "tied", "The prior's kappa is inf: it must be a positive number"),
    "kappa's type": ({"kappa": "weak"}, "full", "The prior's kappa is 'weak': it must be a positive number"),
    "no nu": ({"nu": 0.0}, "diagonal", "The prior's nu is 0.0: it must be a positive number"),
    "nu's type": ({"nu": [5]}, "full", r"The prior's nu is \[5\]: it must be a positive number"),
    "too few": ({"nu": 2}, "full", "The prior's nu is 2: it must exceed 2 for covariance='full'"),
    "too few, tied": ({"nu": 1.5}, "tied", "The prior's nu is 1.5: it must exceed 2 for covariance='tied'"),
    "scale's shape": ({"scale": np.ones(2)}, "full", r"shape \(2,\): .*'full' needs a number or \(3,\) or \(3, 3\)"),
    "matrix": ({"scale": PSI}, "diagonal", r"shape \(3, 3\): covariance='diagonal' needs a number or \(3,\)"),
    "variances": ({"scale": VARIANCE}, "spherical", r"shape \(3,\): covariance='spherical' needs a number\."),
    "string": ({"scale": "wide"}, "tied", "The prior's scale is 'wide': numbers are needed"),
    "ragged": ({"scale": [[1.0], [1.0, 2.0]]}, "tied", "The prior's scale is .*: numbers are needed"),
    "NaN": ({"scale": np.nan}, "diagonal", "The prior's scale must be finite"),
    "infinite": ({"scale": [1.0, np.inf, 1.0]}, "full", "The prior's scale must be finite"),
    "zero": ({"scale": 0.0}, "diagonal", "The prior's scale is 0.0: it must be positive"),
    "one negative": ({"scale": [1.0, -1.0, 1.0]}, "tied_diagonal", "it must be positive"),
    "negative": ({"scale": -2.0}, "spherical", "The prior's scale is -2.0: it must be positive"),
    "zero matrix": ({"scale": 0.0}, "full", "The prior's scale must be positive definite"),
    "asymmetric": ({"scale": np.triu(PSI)}, "full", "The prior's scale must be symmetric"),
    "indefinite": ({"scale": np.ones((D, D)) - np.eye(D)}, "tied", "The prior's scale must be positive definite"),
}


@pytest.mark.parametrize(("params", "structure", "match"), WRONG.values(), ids=WRONG.keys())
def test_wrong_priors_are_refused(params, structure, match):
    with pytest.raises(ValueError, match=match):
        in_units(NormalInverseWishartPrior(**params), structure)


@pytest.mark.parametrize(
    ("mean", "match"),
    {
        "shape": ([1.0, 2.0], r"The prior's mean has shape \(2,\): a number or 3 numbers are needed"),
        "NaN": (np.nan, "The prior's mean must be finite"),
        "string": ("low", "The prior's mean is 'low': numbers are needed"),
    }.values(),
)
def test_wrong_means_are_refused(mean, match):
    with pytest.raises(ValueError, match=match):
        NormalInverseWishartPrior(mean=mean).origin(D)


# Parameters


PARAMETERS = {
    NormalInverseWishartPrior: {"mean": None, "kappa": 1.0, "nu": None, "scale": None, "concentration": 1.0},
    RidgePrior: {"strength": 1.0, "concentration": 1.0},
}
priors = pytest.mark.parametrize("prior", PARAMETERS)


@priors
def test_parameters_by_name(prior):
    assert prior().get_params() == PARAMETERS[prior]
    changed = prior().set_params(concentration=2.5)
    assert changed == prior(concentration=2.5)
    assert changed.get_params()["concentration"] == 2.5
    with pytest.raises(ValueError, match=f"{prior.__name__} has no parameter 'width': its .*'concentration'"):
        prior().set_params(width=1)


def test_a_clone_is_another_prior_with_the_same_parameters():
    prior = NormalInverseWishartPrior(mean=[1.0, 2.0, 3.0], kappa=0.5, nu=7, scale=PSI)
    copy = clone(prior)
    assert copy is not prior
    assert copy.get_params().keys() == prior.get_params().keys()
    np.testing.assert_array_equal(copy.scale, PSI)
    assert (copy.mean, copy.kappa, copy.nu) == ([1.0, 2.0, 3.0], 0.5, 7)
    copy.set_params(kappa=9.0)
    assert prior.kappa == 0.5


@priors
def test_parameters_through_an_estimator(prior):
    model = GaussianClassifier("full", estimate="map", prior=prior())
    assert model.get_params()["prior__concentration"] == 1.0
    model.set_params(prior__concentration=3.0)
    copy = clone(model)
    assert copy.prior == prior(concentration=3.0)
    assert copy.prior is not model.prior
