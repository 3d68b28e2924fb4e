"""The settings of Gaussian processes: one model by default, however its sites are found."""

import numpy as np
import pytest

from posteriori import DeepGPClassifier, GPClassifier, kernels
from posteriori.gp.settings import read_settings

HOW = [{}, {"power": 0.5}, {"inference": "vi"}, {"inference": "energy"}, {"inference": "energy", "power": 0.3}]
each_way = pytest.mark.parametrize("how", HOW, ids=repr)
each_class = pytest.mark.parametrize("model", [GPClassifier, DeepGPClassifier])


def settings_of(model, **given):
    return read_settings(model(**given).get_params(deep=False))


@each_class
@each_way
def test_noise_is_one_however_sites_are_found(model, how):
    """Noise makes another model: it must not follow from the method of inference."""
    likelihood = settings_of(model, **how).likelihood
    assert likelihood.noise == 1.0
    assert likelihood == settings_of(model).likelihood


@each_class
@each_way
@pytest.mark.parametrize("noise", [0.0, 0.3, 2])
def test_noise_that_is_given_is_kept(model, how, noise):
    assert settings_of(model, noise=noise, **how).likelihood.noise == noise


@each_way
def test_a_rate_of_zero_needs_noise_where_logarithms_are_averaged(how):
    assert settings_of(GPClassifier, mislabelling=0, **how).likelihood.rate == 1e-300
    if settings_of(GPClassifier, **how).power == 1.0:
        assert settings_of(GPClassifier, mislabelling=0, noise=0, **how).likelihood.noise == 0.0
    else:
        with pytest.raises(ValueError, match=r"mislabelling=0 with noise=0 makes log p.* infinite"):
            settings_of(GPClassifier, mislabelling=0, noise=0, **how)


def rows():
    """Forty rows of three classes whose boundaries are noisy."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    scores = np.stack([X[:, 0], X[:, 1], -X.sum(axis=1)]) + 0.5 * rng.normal(size=(3, 40))
    return X, scores.argmax(axis=0)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """The log evidence under one kernel; a checkpoint makes JAX find the sites of "ep" as it finds all others."""
    pytest.importorskip("jax")

    def of(**how):
        kernel = kernels.RBF(1.5) + kernels.Constant(0.5)
        model = GPClassifier(kernel, scale=1.5, max_iter=0, calibrate=False, **how)
        return model.fit(*rows()).log_evidence_

    return of


@pytest.fixture(scope="module")
def evidence_of_ep(evidence, tmp_path_factory):
    return evidence(checkpoint=tmp_path_factory.mktemp("fit") / "fit.npz")


@pytest.mark.parametrize("power", [0.5, pytest.param(0.9999, marks=pytest.mark.slow)])
def test_the_evidence_of_another_power_is_of_the_same_model(evidence, evidence_of_ep, power):
    assert evidence(power=power) == pytest.approx(evidence_of_ep, abs=1.0 if power == 0.5 else 0.2)


def test_the_variational_bound_is_of_the_same_model(evidence, evidence_of_ep):
    """Below the evidence, by a few nats; without noise it is far below."""
    bound = evidence(inference="vi")
    assert evidence_of_ep - 4.0 < bound < evidence_of_ep + 0.05
    assert evidence(inference="vi", noise=0) < bound - 5.0
