"""
Reliability of four models
==========================

Are models calibrated as they come? Each is fitted to the same 600 rows, and judged on 1,800 others by
:class:`~posteriori.ReliabilityDisplay`.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(0)
X = rng.normal(size=(2400, 6))
logits = np.column_stack([X[:, 0] * X[:, 1], X[:, 2] - X[:, 0], 1.5 * np.sin(2 * X[:, 3])])
y = (2 * logits + rng.gumbel(size=(2400, 3))).argmax(axis=1)
X, X_new, y, y_new = X[:600], X[600:], y[:600], y[600:]

models = {
    "softmax": po.BayesianSoftmaxRegression(),
    "Gaussian classes": po.GaussianClassifier(),
    "forest": po.ForestClassifier(n_trees=150, random_state=0),
    "boosted trees": po.BoostingClassifier(max_rounds=150, random_state=0),
}

# %%
# Bars are two standard errors. Points near the diagonal at all probabilities are what to look for; how far to the right
# they reach says how much a model knows.

fig, axes = plt.subplots(2, 2, figsize=(8, 8), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes.flat, models.items(), strict=True):
    po.ReliabilityDisplay.from_estimator(model.fit(X, y), X_new, y_new, n_bins=8, ax=ax)
    loss = po.evaluate(model, X_new, y_new).scores["log_loss"].value
    ax.get_legend().remove()
    ax.set(title=f"{name}: log-loss {loss:.3f}", xlabel="", ylabel="")
fig.supxlabel("probability of the most probable class")
fig.supylabel("frequency with which it is right")
fig.suptitle("Four models are about as right as they say, but do not know equally much")
plt.show()

# %%
# **Take-away.** Calibration and knowledge are two things: a model can be honest and know little. The log-loss counts
# both.
