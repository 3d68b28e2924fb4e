"""
Decision regions of every model
===============================

Eight classifiers see the same 150 rows of three classes. Two of the classes are bent around each other, and the third
is a small group at the side of one of them. Each panel shows which class a model prefers at each place, and how sure
it is: the paler the colour, the closer the two best classes are.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(0)
y = np.repeat([0, 1, 2], 50)
angle = np.where(y == 0, rng.uniform(0, np.pi, 150), rng.uniform(np.pi, 2 * np.pi, 150))
shift = np.array([[0.0, 0.0], [1.0, 0.4], [0.1, -0.4]])[y]
ring = np.column_stack([np.cos(angle), np.sin(angle)]) * (y < 2)[:, None]
X = ring + shift + np.array([0.2, 0.2, 0.12])[y, None] * rng.normal(size=(150, 2))

# %%
# Settings are close to the defaults. The deep Gaussian process has fewer inducing inputs and learns less, to save time;
# it needs JAX (``pip install 'posteriori[gp]'``), the others do not.

models = {
    "softmax": po.SoftmaxRegression(),
    "Bayesian softmax": po.BayesianSoftmaxRegression(),
    "Gaussian classes": po.GaussianClassifier("full"),
    "forest": po.ForestClassifier(n_trees=100, random_state=0),
    "boosted trees": po.BoostingClassifier(random_state=0),
    "Gaussian process": po.GPClassifier(random_state=0),
    "deep Gaussian process": po.DeepGPClassifier(n_inducing=20, n_samples=5, tol=0.05, random_state=0),
}
models["stack"] = po.StackedClassifier(
    {name: models[name] for name in ("softmax", "Gaussian classes", "forest", "Gaussian process")}
)

# %%
# :class:`~posteriori.DecisionRegionDisplay` draws one model. Here it draws all of them, side by side.

fig, axes = plt.subplots(2, 4, figsize=(9.5, 5.4), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes.flat, models.items(), strict=True):
    model.fit(X, y)
    po.DecisionRegionDisplay.from_estimator(model, X, resolution=50, ax=ax)
    for k in range(3):
        ax.scatter(*X[y == k].T, s=10, color=f"C{k}", edgecolor="white", linewidth=0.4)
    ax.set(title=name, xlabel="", ylabel="", xticks=[], yticks=[])
fig.suptitle("Three classes as eight classifiers see them")
plt.show()

# %%
# **Take-away.** Softmax regression draws straight borders, Gaussian classes curved ones, trees rectangular ones, and
# Gaussian processes borders of any shape: choose a model by the borders that your data need, or let a stack choose.
