"""
Calibration, before and after
=============================

Probabilities are *calibrated* if of the rows with probability 0.8, eighty in a hundred are right. Naive Bayes
multiplies what its features say as if each were independent, and is far too sure.
:class:`~posteriori.CalibratedClassifier` learns from left-out rows how to correct it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.naive_bayes import GaussianNB

import posteriori as po

rng = np.random.default_rng(0)
y = rng.integers(0, 2, 4500)
signal = y + 0.8 * rng.normal(size=4500)
X = signal[:, None] + 0.5 * rng.normal(size=(4500, 8))  # eight instruments measure the same signal
X, X_new, y, y_new = X[:500], X[500:], y[:500], y[500:]

models = {"naive Bayes": GaussianNB(), "calibrated": po.CalibratedClassifier(GaussianNB())}

# %%
# Points on the diagonal are right as often as they say. The pale bars show how many rows each point stands for.

fig, axes = plt.subplots(1, 2, figsize=(9, 4.6), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(X, y)
    P = model.predict_proba(X_new)
    po.ReliabilityDisplay.from_predictions(y_new, P, of=1, strategy="uniform", n_bins=8, ax=ax)
    loss = po.evaluate(model, X_new, y_new).scores["log_loss"].value
    ax.set(title=f"{name}: log-loss {loss:.3f}", xlabel="probability of class 1")
axes[1].set_ylabel("")
fig.suptitle("Naive Bayes is too sure; left-out rows correct it")
plt.show()

# %%
# **Take-away.** Wrap a classifier whose order you trust but whose probabilities you do not: the correction is left out
# where it does not help.
