"""After a fit or a prediction no rows are left in memory: references make no circles, so that nothing waits for gc."""

import gc
import weakref
from time import sleep

import numpy as np
import pytest
from tests.slow import quick_first

import posteriori as po
from posteriori.rows.memory import MemoryBlocks

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 3)) * [1.0, 1e4, 1.0] + [0.0, 1e8, 0.0]
Y = (X[:, [0, 2]] @ rng.normal(size=(2, 3)) + rng.gumbel(size=(300, 3))).argmax(axis=1)
MODELS = {
    "softmax": lambda: po.SoftmaxRegression(),
    "bayes": lambda: po.BayesianSoftmaxRegression(),
    "gaussian": lambda: po.GaussianClassifier("tied"),
    "softmax by conjugate gradients": lambda: po.SoftmaxRegression(solver=po.Newton(exact=False)),
    "bayes, flat": lambda: po.BayesianSoftmaxRegression("flat"),
    "bayes, jeffreys": lambda: po.BayesianSoftmaxRegression("jeffreys"),
    "bayes, kronecker": lambda: po.BayesianSoftmaxRegression(1.0, posterior="kronecker"),
}


@pytest.mark.parametrize("name", quick_first(MODELS, 3))
def test_rows_are_freed_with_the_last_reference(name, monkeypatch):
    made = []
    start = MemoryBlocks.__init__

    def counted(self, *args, **options):
        made.append(weakref.ref(self))
        start(self, *args, **options)

    monkeypatch.setattr(MemoryBlocks, "__init__", counted)
    gc.collect()
    gc.disable()
    try:
        model = MODELS[name]().fit(X, Y)
        model.predict_proba(X)
        assert made
        for _ in range(200):  # a helping thread may need a moment to forget its last task
            if all(blocks() is None for blocks in made):
                break
            sleep(0.01)
        assert [blocks() for blocks in made if blocks() is not None] == []
    finally:
        gc.enable()
