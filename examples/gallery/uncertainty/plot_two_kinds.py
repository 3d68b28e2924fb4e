"""
Two kinds of uncertainty
========================

A prediction can be unsure for two reasons. Classes overlap, so that even the true probabilities are far from 0 and 1:
this part is called *aleatoric*, and no data would remove it. Or the model has seen too little: this part is
*epistemic*, and more rows remove it. ``uncertainty`` splits the entropy of a prediction into the two.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(4)
weights = np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])  # of the first two of eight features


def simulate(n):
    """Rows of three classes that overlap."""
    X = rng.normal(size=(n, 8))
    return X, (X[:, :2] @ weights.T + rng.gumbel(size=(n, 3))).argmax(axis=1)


X_new, _ = simulate(300)
sizes = [20, 40, 80, 160, 320, 640, 1280]
parts = []
for n in sizes:
    u = po.BayesianSoftmaxRegression().fit(*simulate(n)).uncertainty(X_new)
    parts.append([u.aleatoric.mean(), u.epistemic.mean()])
aleatoric, epistemic = np.transpose(parts)

# %%
# New rows are the same each time, and the model is fitted to more and more rows.

fig, ax = plt.subplots(layout="constrained")
ax.stackplot(sizes, aleatoric, epistemic, labels=["aleatoric", "epistemic"], colors=["C0", "C1"], alpha=0.85)
ax.set(xscale="log", xlabel="rows of the fit", ylabel="entropy of new rows, nats", xlim=(20, 1280), ylim=(0, 1.1))
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.legend(loc="upper right", ncols=2)
ax.set_title("More rows remove the epistemic part, the aleatoric part stays")
plt.show()

# %%
# **Take-away.** Look at the epistemic part before you collect more rows: where it is small, they will change little.
