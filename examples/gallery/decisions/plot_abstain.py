"""
How much to leave undecided
===========================

If a model may leave the hardest rows to somebody else, it is right more often about the others. The curve shows how
often, for each share of rows that are decided, the clearest first. It is one way to choose how many rows to hand on.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import posteriori as po

X, y = load_digits(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=6, size=X.shape)  # noise makes the digits hard to read
X, X_new, y, y_new = train_test_split(X, y, test_size=0.5, random_state=0)

# %%
# Two models that see all pixels, or 16 of them. Bands are two standard errors. The utility is 1 for the right digit and
# 0 for another, so that its mean is the accuracy.

fig, ax = plt.subplots(layout="constrained")
for name, seen in {"all 64 pixels": slice(None), "16 pixels in the middle": slice(24, 40)}.items():
    model = po.GaussianClassifier("tied").fit(X[:, seen], y)
    po.UtilityCurveDisplay.from_estimator(model, X_new[:, seen], y_new, name=name, ax=ax)
ax.set(
    ylabel="accuracy of the rows decided",
    ylim=(0, 1.03),
    title="The fewer rows are decided, the more often they are right",
)
ax.legend(loc="lower left")
plt.show()

# %%
# **Take-away.** A model that knows when it is unsure is worth more than its accuracy says.
