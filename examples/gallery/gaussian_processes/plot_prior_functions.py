"""
Probabilities drawn from a Gaussian process
===========================================

A Gaussian process is a distribution over functions. Before the labels it holds many curves possible, as far as the
kernel allows; after them, only those that agree with the labels. ``prior_sample`` and ``sample_proba`` draw such
curves.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(3)
x = np.sort(rng.uniform(-2, 2, 60))
y = (rng.random(60) < 1 / (1 + np.exp(-4 * np.sin(2 * x)))).astype(int)
model = po.GPClassifier(random_state=0).fit(x[:, None], y)

x_new = np.linspace(-5, 5, 161)
curves = {
    "before the labels": model.prior_sample(x_new[:, None], n_draws=12, random_state=0)[:, :, 1],
    "after the labels": model.sample_proba(x_new[:, None], n_draws=12, random_state=0)[:, :, 1],
}

fig, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), sharey=True, layout="constrained")
for ax, (name, draws) in zip(axes, curves.items(), strict=True):
    ax.plot(x_new, draws.T, color="C5", linewidth=1, alpha=0.8)
    ax.set(title=name, xlabel="x", xlim=(-5, 5))
axes[1].plot(x_new, model.predict_proba(x_new[:, None])[:, 1], color="C1", linewidth=2.5, label="prediction")
axes[1].plot(x, np.where(y == 1, 1.05, -0.05), "|", color="C6", markersize=7, label="rows")
fig.legend(loc="outside lower center", ncols=2)
axes[0].set_ylabel("probability of class 1")
fig.suptitle("Twelve probability curves from a Gaussian process")
plt.show()

# %%
# **Take-away.** Where there are rows the curves agree, elsewhere each goes its own way: that is what "uncertain" means
# here.
