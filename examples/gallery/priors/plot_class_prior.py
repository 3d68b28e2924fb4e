"""
Another mix of classes
======================

A model is fitted where a disease is common, and used where it is rare. What a measurement tells about the disease is
the same; how often the disease occurs is not. ``with_class_prior`` changes the probabilities accordingly, without a
new fit.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(0)


def patients(n, share):
    """Measurements of healthy (0) and ill (1) patients."""
    y = (rng.random(n) < share).astype(int)
    return np.array([[0.0, 0.0], [1.5, 1.0]])[y] + rng.normal(size=(n, 2)), y


hospital = po.BayesianSoftmaxRegression().fit(*patients(1000, share=0.5))
village = hospital.with_class_prior([0.95, 0.05])

X, y = patients(20_000, share=0.05)

# %%
# In the village five of a hundred are ill. Calibrated probabilities lie on the diagonal.

fig, axes = plt.subplots(1, 2, figsize=(9, 4.6), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, {"as fitted": hospital, "with the village's classes": village}.items(), strict=True):
    P = model.predict_proba(X)
    po.ReliabilityDisplay.from_predictions(y, P, of=1, strategy="uniform", ax=ax)
    loss = -np.log(P[np.arange(len(y)), y]).mean()
    ax.set(title=f"{name}, log-loss {loss:.3f}", xlabel="probability of illness")
axes[1].set_ylabel("")
fig.suptitle("A new mix of classes needs new class frequencies, not a new fit")
plt.show()

# %%
# **Take-away.** If classes are more or less frequent where the model is used, say so with ``with_class_prior``.
