"""
Uncertainty far from the data
=============================

What does a model say about a place where it has seen nothing? A point estimate of softmax regression becomes ever
more sure the further it goes. Its Bayesian version knows that the border's direction is uncertain. A Gaussian process
is unsure everywhere far away: it averages over kernels that the rows make about equally likely.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(0)
y = np.repeat([0, 1], 25)
X = np.array([[-1.0, 0.0], [1.0, 0.0]])[y] + 0.7 * rng.normal(size=(50, 2))

models = {
    "softmax": po.SoftmaxRegression(),
    "Bayesian softmax": po.BayesianSoftmaxRegression(),
    "Gaussian process": po.GPClassifier(random_state=0),
}

# %%
# The entropy of a prediction is 0 where the model is sure, and 0.69 nats where both classes are equally probable.

axis = np.linspace(-12, 12, 61)
places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

fig, axes = plt.subplots(1, 3, figsize=(10, 3.9), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    P = model.fit(X, y).predict_proba(places)
    entropy = -(P * np.log(P)).sum(axis=1).reshape(61, 61)
    image = ax.pcolormesh(axis, axis, entropy, vmin=0, vmax=np.log(2), shading="gouraud", rasterized=True)
    for k in range(2):
        ax.scatter(*X[y == k].T, s=12, color=["C5", "C1"][k], edgecolor="white", linewidth=0.4)
    ax.set(title=name, aspect="equal", xticks=[-10, 0, 10], yticks=[-10, 0, 10])
fig.colorbar(image, ax=axes, label="entropy, nats", shrink=0.8)
fig.suptitle("Bright is unsure: only the Gaussian process is unsure far from all rows")
plt.show()

# %%
# **Take-away.** If new rows may lie far from those of the fit, use a model that says so: a Gaussian process, or at
# least the Bayesian version of a linear one.
