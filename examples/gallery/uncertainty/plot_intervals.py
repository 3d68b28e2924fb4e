"""
Intervals on a probability
==========================

"The probability is 0.7" can rest on ten rows or on a thousand. ``predict_interval`` gives the two values between
which the true probability lies with a probability of 95 %, if the model is right.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(1)


def truth(x):
    """Probability of class 1."""
    return 1 / (1 + np.exp(-1.5 * x))


x_new = np.linspace(-4, 4, 121)

fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, n in zip(axes, [20, 500], strict=True):
    x = rng.normal(size=n)
    y = (rng.random(n) < truth(x)).astype(int)
    model = po.BayesianSoftmaxRegression().fit(x[:, None], y)
    lower, upper = model.predict_interval(x_new[:, None], level=0.95)
    ax.fill_between(x_new, lower[:, 1], upper[:, 1], color="C0", alpha=0.25, linewidth=0, label="95 % interval")
    ax.plot(x_new, model.predict_proba(x_new[:, None])[:, 1], color="C0", label="probability")
    ax.plot(x_new, truth(x_new), "--", color="C1", label="true probability")
    ax.plot(x, np.where(y == 1, 1.04, -0.04), "|", color="C6", markersize=7, alpha=0.6)
    ax.set(xlabel="x", title=f"{n} rows")
axes[0].set_ylabel("probability of class 1")
axes[0].legend(loc="upper left", bbox_to_anchor=(0.0, 0.97))
fig.suptitle("The interval narrows as rows are added")
plt.show()

# %%
# **Take-away.** The same probability deserves more or less trust, and its interval says how much.
