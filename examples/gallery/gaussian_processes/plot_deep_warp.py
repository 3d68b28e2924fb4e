"""
What a hidden layer does
========================

A deep Gaussian process passes its input through a hidden layer of functions before it classifies. Here labels change
slowly on one side and fast on the other: one lengthscale does not suit both. A hidden layer can stretch the fast
side. These data were made for it: on most tables a second layer takes longer and does not pay.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po
from posteriori.kernels import RBF, Constant

rng = np.random.default_rng(0)


def truth(x):
    """Probability of class 1: a wave whose length shrinks from left to right."""
    return 1 / (1 + np.exp(-4 * np.cos(2 * np.exp(0.9 * x))))


x = np.sort(rng.uniform(-2, 2, 400))
y = (rng.random(400) < truth(x)).astype(int)
x_new = np.linspace(-2, 2, 300)

models = {
    "one layer": po.GPClassifier(RBF() + Constant(), random_state=0),
    "two layers": po.DeepGPClassifier((1,), n_inducing=30, n_samples=5, tol=0.05, random_state=0),
}

# %%
# The deep model needs JAX: ``pip install 'posteriori[gp]'``.

fig, axes = plt.subplots(2, 1, figsize=(7.5, 5.6), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    P = model.fit(x[:, None], y).predict_proba(x_new[:, None])[:, 1]
    ax.plot(x_new, truth(x_new), "--", color="C1", linewidth=1.5, label="true probability")
    ax.plot(x_new, P, color="C0", label="predicted")
    ax.plot(x, np.where(y == 1, 1.06, -0.06), "|", color="C6", markersize=6, alpha=0.4)
    error = np.abs(P - truth(x_new)).mean()
    ax.set(title=f"{name}: mean error of the probability {error:.3f}", ylabel="probability", xlim=(-2, 2))
axes[1].set_xlabel("x")
axes[1].legend(loc="lower left")
plt.show()

# %%
# **Take-away.** A second layer can help where the border changes its scale from place to place, and does not always do
# so: fit :class:`~posteriori.GPClassifier` first, and keep the deeper model only if it predicts new rows better.
