"""
How surely a Gaussian process predicts
======================================

Real classes are often easier to tell apart than the prior of a Gaussian process believes, so that its probabilities are too
timid. With ``calibrate=True``, the default, left-out rows say by which factor its variances should shrink, without a new fit.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import posteriori as po

X, y = load_digits(return_X_y=True)
X, y, X_new, y_new = X[:300], y[:300], X[300:1300], y[300:1300]

# %%
# Points above the diagonal are predictions that are right more often than they say.

fig, axes = plt.subplots(1, 2, figsize=(9, 4.6), sharey=True, layout="constrained")
for ax, calibrate in zip(axes, [False, True], strict=True):
    model = po.GPClassifier(calibrate=calibrate, random_state=0).fit(X, y)
    po.ReliabilityDisplay.from_estimator(model, X_new, y_new, name=None, n_bins=8, ax=ax)
    loss = po.evaluate(model, X_new, y_new).scores["log_loss"].value
    ax.get_legend().remove()
    ax.set_title(f"calibrate={calibrate}: log-loss {loss:.3f}")
axes[1].set_ylabel("")
fig.suptitle("Left-out rows make a timid Gaussian process as sure as it may be")
plt.show()

# %%
# **Take-away.** Keep ``calibrate=True``: it costs little, and changes nothing where left-out rows do not ask for it.
