"""
Kernels of a Gaussian process
=============================

The kernel says which functions are likely: straight, smooth, rough, or of several lengths at once. The log evidence
says which kernel the labels speak for, without left-out rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po
from posteriori.kernels import RBF, Constant, Linear, Matern

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(150, 2))
y = (X[:, 1] > 1.6 * np.sin(1.5 * X[:, 0]) + 0.3 * rng.normal(size=150)).astype(int)

kernels = {
    "linear": Linear() + Constant(),
    "Matern, order 1/2": Matern(order=0.5) + Constant(),
    "RBF": RBF() + Constant(),
    "default": None,
}

# %%
# A border in the shape of a wave. A linear kernel cannot follow it; the others can.

fig, axes = plt.subplots(1, 4, figsize=(10, 3.2), sharex=True, sharey=True, layout="constrained")
for ax, (name, kernel) in zip(axes, kernels.items(), strict=True):
    model = po.GPClassifier(kernel, random_state=0).fit(X, y)
    po.DecisionRegionDisplay.from_estimator(model, X, resolution=60, ax=ax)
    for k in range(2):
        ax.scatter(*X[y == k].T, s=8, color=f"C{k}", edgecolor="white", linewidth=0.3)
    ax.set(title=f"{name}\nlog evidence {model.log_evidence_:.1f}", xlabel="", ylabel="", xticks=[], yticks=[])
fig.suptitle("The same rows under four kernels")
plt.show()

# %%
# **Take-away.** Compare kernels by their log evidence, or leave ``kernel=None``: the default is a sum of parts that can
# be straight, smooth or rough.
