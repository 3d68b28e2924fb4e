"""
Rare classes
============

Three rows do not determine a covariance of their own. Maximum likelihood gives the rare class a thin ellipse around
them, and is sure of what it cannot know. :class:`~posteriori.GaussianClassifier` integrates over what it does not
know, and borrows shape from the other classes.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(3)


def draw(sizes):
    """Rows of two common classes and a rare one."""
    y = np.repeat(["a", "b", "rare"], sizes)
    centre = {"a": [0.0, 0.0], "b": [3.0, 0.0], "rare": [1.5, 2.5]}
    return np.array([centre[k] for k in y]) + rng.normal(size=(len(y), 2)), y


X, y = draw([60, 60, 3])
X_new, y_new = draw([2000, 2000, 100])

fig, axes = plt.subplots(1, 2, figsize=(9.5, 4.2), sharex=True, sharey=True, layout="constrained")
for ax, estimate in zip(axes, ["mle", "bayes"], strict=True):
    model = po.GaussianClassifier("full", estimate=estimate).fit(X, y)
    po.DecisionRegionDisplay.from_estimator(model, X, y, resolution=150, ax=ax)
    loss = po.evaluate(model, X_new, y_new).scores["log_loss"].value
    found = (model.predict(X_new[y_new == "rare"]) == "rare").mean()
    ax.get_legend().remove()
    ax.set(title=f"{estimate}: log-loss {loss:.3f}\nfinds {found:.0%} of the rare class", xlabel="", ylabel="")
    ax.set(xticks=[], yticks=[])
fig.suptitle("Three rows of a rare class, by maximum likelihood and integrated out")
plt.show()

# %%
# **Take-away.** Keep ``estimate="bayes"``, the default: classes with few rows get careful probabilities instead of bold
# ones.
