"""
Effects in units of probability
===============================

A coefficient changes a logit, which few people can picture. A *marginal effect* is the change of a class probability
when a feature grows by one unit, averaged over rows. The effects of all classes sum to zero: what one class gains,
others lose.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import posteriori as po

wine = load_wine(as_frame=True)
X = wine.data[["alcohol", "malic_acid", "color_intensity"]]
model = po.BayesianSoftmaxRegression().fit(X, wine.target_names[wine.target])
effects = model.marginal_effects(X)
print(effects.round(3).to_string(index=False))

# %%
# One panel for each feature; the unit is that of the feature.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
for ax, (feature, part) in zip(axes, effects.groupby("feature", sort=False), strict=True):
    error = np.array([part["mean"] - part["lower"], part["upper"] - part["mean"]])
    ax.errorbar(part["class"], part["mean"], yerr=error, fmt="o", color="C0")
    ax.axhline(0, color="0.6", linewidth=1, zorder=0)
    ax.set(title=feature.replace("_", " "), xlim=(-0.5, 2.5))
    ax.tick_params(axis="x", rotation=30)
axes[0].set_ylabel("change of probability per unit")
fig.suptitle("Marginal effects on three kinds of wine, with 95 % intervals")
plt.show()

# %%
# **Take-away.** Report marginal effects to people who think in probabilities, and coefficients to those who build
# models.
