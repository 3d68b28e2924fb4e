"""
A tied Gaussian is a softmax regression
=======================================

Gaussian classes that share one covariance have straight borders, exactly those of a softmax regression.
``to_softmax`` gives that model. It is not the same as the softmax regression that is fitted to the labels: that one
has the same form, but looks for the weights that predict the labels best, while the Gaussian describes how the rows
are distributed.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(5)
y = np.repeat([0, 1, 2], 40)
X = np.array([[0, 0], [2.5, 0], [0, 2.5]])[y] + rng.normal(size=(120, 2))
X[:6] += [-7, -6]  # six rows of class 0 lie far out

gaussian = po.GaussianClassifier("tied", estimate="mle").fit(X, y)
softmax = po.SoftmaxRegression(1e-3).fit(X, y)
same = np.abs(gaussian.to_softmax().predict_proba(X) - gaussian.predict_proba(X)).max()
print(f"largest difference between the Gaussian and its softmax: {same:.0e}")

# %%
# Six rows of class 0 lie far from the others. They widen the Gaussian and move its borders; for the softmax regression
# they are simply rows on the right side of its border.

fig, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, {"tied Gaussian": gaussian, "softmax regression": softmax}.items(), strict=True):
    po.DecisionRegionDisplay.from_estimator(model, X, y, resolution=120, ax=ax)
    ax.get_legend().remove()
    ax.set_title(f"{name}, accuracy {model.score(X, y):.3f}")
fig.suptitle("Rows far out move the borders of the Gaussian only")
plt.show()

# %%
# **Take-away.** Both models have straight borders; a Gaussian learns more from few rows if its assumption holds, a
# softmax regression does not need the assumption.
