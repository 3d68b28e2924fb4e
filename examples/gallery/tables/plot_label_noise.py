"""
Labels that may be wrong
========================

Somebody has labelled the rows, and some labels are mistakes. A model that takes all of them for true must doubt every
prediction. With ``label_noise="estimate"`` it learns how often labels are wrong.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, 1000)
truth = (rng.random(1000) < 1 / (1 + np.exp(-4 * x))).astype(int)
wrong = rng.random(1000) < 0.2
y = np.where(wrong, rng.integers(0, 2, 1000), truth)  # a fifth of the labels is drawn at random

plain = po.BayesianSoftmaxRegression().fit(x[:, None], y)
noisy = po.BayesianSoftmaxRegression(label_noise="estimate").fit(x[:, None], y)
print(f"estimated share of random labels: {noisy.label_noise_:.2f}")

# %%
# ``predict_proba`` is the probability of the label as it will be observed; the class itself follows from it by taking
# the noise away.

x_new = np.linspace(-3, 3, 200)
observed = noisy.predict_proba(x_new[:, None])[:, 1]
eps = noisy.label_noise_
fig, ax = plt.subplots(layout="constrained")
ax.plot(x_new, 1 / (1 + np.exp(-4 * x_new)), "--", color="C6", linewidth=1.5, label="true class")
ax.plot(x_new, plain.predict_proba(x_new[:, None])[:, 1], color="C1", label="labels taken for true")
ax.plot(x_new, observed, color="C5", label="label noise: observed label")
ax.plot(x_new, (observed - eps / 2) / (1 - eps), color="C0", label="label noise: class itself")
ax.plot(x, y + 0.03 * rng.normal(size=1000), ".", color="C6", markersize=3, alpha=0.25, zorder=0)
ax.set(xlabel="x", ylabel="probability of class 1", title="Learning the noise gives back the steep curve")
ax.legend(loc="center right", fontsize=10)
plt.show()

# %%
# **Take-away.** If labels may be wrong, say so: a few mistakes far from the border otherwise flatten the whole curve.
