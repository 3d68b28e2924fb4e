"""
What a prior expects
====================

A prior on weights is a claim about probabilities, before any label is seen. ``prior_sample`` draws class
probabilities under weights from the prior: check whether they are what you would expect.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import posteriori as po

X, y = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)

# %%
# For each of three precisions: the probability of the most probable class, over rows and draws. With three classes it
# is at least a third.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
for ax, precision in zip(axes, [0.01, 1, 100], strict=True):
    model = po.BayesianSoftmaxRegression(precision).fit(X, y)
    top = model.prior_sample(X, n_draws=200, random_state=0).max(axis=2)
    ax.hist(top.ravel(), bins=np.linspace(1 / 3, 1, 25), weights=np.full(top.size, 1 / top.size), color="C0")
    sure = (top > 0.99).mean()
    ax.set(xlabel="largest probability", title=f"precision {precision}\n{sure:.0%} surer than 0.99", xlim=(1 / 3, 1))
axes[0].set_ylabel("share of rows and draws")
fig.suptitle("A weak prior on weights is a strong belief about probabilities")
plt.show()

# %%
# **Take-away.** A weak prior is not a modest one: with many features it expects nearly every row to be clear-cut.
