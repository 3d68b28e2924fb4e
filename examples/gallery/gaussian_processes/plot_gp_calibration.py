"""
Calibration of a Gaussian process
=================================

The data are handwritten digits from 0 to 4. Real classes are often easier to tell apart than the prior of a Gaussian
process believes, so that its probabilities are too timid. With ``calibrate=True``, the default, left-out rows say by
which factor its variances should shrink, without a new fit.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import posteriori as po

X, y = load_digits(n_class=5, return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, train_size=200, random_state=0)

# %%
# Points above the diagonal are predictions that are right more often than they say.

fig, axes = plt.subplots(1, 2, figsize=(9, 4.6), sharey=True, layout="constrained")
for ax, calibrate in zip(axes, [False, True], strict=True):
    model = po.GPClassifier(calibrate=calibrate, random_state=0).fit(X, y)
    po.ReliabilityDisplay.from_estimator(model, X_new, y_new, strategy="uniform", n_bins=6, ax=ax)
    loss = po.evaluate(model, X_new, y_new).scores["log_loss"].value
    ax.get_legend().remove()
    ax.set_title(f"calibrate={calibrate}: log-loss {loss:.3f}")
axes[1].set_ylabel("")
fig.suptitle("Left-out rows correct the probabilities of a Gaussian process")
plt.show()

# %%
# **Take-away.** Keep ``calibrate=True``: it costs little, and changes nothing where left-out rows do not ask for it.
