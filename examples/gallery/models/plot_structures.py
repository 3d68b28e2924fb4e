"""
Five structures of a Gaussian class
===================================

:class:`~posteriori.GaussianClassifier` gives each class a Gaussian. What its covariance may look like is its
*structure*: from one matrix for each class to a single variance. Quadratic discriminant analysis, linear discriminant
analysis and naive Bayes are three of them.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(1)
y = np.repeat([0, 1, 2], 60)
shapes = np.array([[[1.5, 1.1], [0.0, 0.5]], [[0.6, -0.5], [0.0, 0.9]], [[0.5, 0.0], [0.0, 0.5]]])
X = np.array([[0.0, 0.0], [3.2, 0.3], [1.2, 3.0]])[y] + np.einsum("ni,nij->nj", rng.normal(size=(180, 2)), shapes[y])

# %%
# Ellipses hold 86 % of a class, two standard deviations in each direction. The number above each panel is the log-loss
# of rows that were left out, smaller is better.


def ellipse(mean, covariances, structure, k):
    """Points two standard deviations from the mean of class k."""
    mine = covariances if structure.startswith("tied") else covariances[k]  # a matrix, variances or one variance
    matrix = mine if np.ndim(mine) == 2 else np.diag(np.broadcast_to(mine, 2))
    angle = np.linspace(0, 2 * np.pi, 100)
    return mean + 2 * np.column_stack([np.cos(angle), np.sin(angle)]) @ np.linalg.cholesky(matrix).T


fig, axes = plt.subplots(1, 5, figsize=(10, 2.7), sharex=True, sharey=True, layout="constrained")
for ax, structure in zip(axes, ["full", "diagonal", "spherical", "tied", "tied_diagonal"], strict=True):
    model = po.GaussianClassifier(structure).fit(X, y)
    for k in range(3):
        ax.scatter(*X[y == k].T, s=6, alpha=0.5, color=f"C{k}")
        ax.plot(*ellipse(model.means_[k], model.covariances_, structure, k).T, color=f"C{k}")
    ax.set(title=f"{structure}\n{model.loo().log_loss:.3f}", xticks=[], yticks=[], aspect="equal")
fig.suptitle("Each structure's Gaussians, and its log-loss of left-out rows")
plt.show()

# %%
# ``covariance="auto"``, the default, compares the same log-losses and takes the simplest structure within one standard
# error of the best.

model = po.GaussianClassifier().fit(X, y)
print(model.solution_.structure_reason)

# %%
# **Take-away.** Leave the structure to ``"auto"``: it takes as rich a covariance as left-out rows ask for, and no
# richer.
