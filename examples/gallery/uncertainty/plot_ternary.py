"""
Three probabilities in a triangle
=================================

Three probabilities that sum to one are a point in a triangle: each corner is one class, the middle is "no idea".
Draws from the posterior make a cloud around the prediction. Its size is the model's uncertainty about the
probabilities themselves.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import posteriori as po

wine = load_wine(as_frame=True)
X = wine.data[["magnesium", "ash"]]  # two measurements that tell little: classes overlap
model = po.BayesianSoftmaxRegression().fit(X, wine.target)

bottles = X.iloc[[73, 0, 59, 177]]
draws = model.sample_proba(bottles, n_draws=400, random_state=0)  # (draws, bottles, classes)

# %%
# A row of three probabilities times the three corners is its place in the triangle.

corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])

fig, ax = plt.subplots(figsize=(7, 5.8), layout="constrained")
ax.fill(*corners.T, facecolor="none", edgecolor="0.5")
for i, mean in enumerate(model.predict_proba(bottles)):
    label = f"magnesium {bottles['magnesium'].iloc[i]:.0f}, ash {bottles['ash'].iloc[i]:.1f}"
    ax.scatter(*(draws[:, i] @ corners).T, s=8, color=f"C{i}", alpha=0.3, linewidth=0)
    ax.scatter(*(mean @ corners), s=90, color=f"C{i}", edgecolor="white", linewidth=1.5, label=label, zorder=3)
for k, (x, z) in enumerate(corners):
    up = k == 2
    ax.text(x, z + (0.02 if up else -0.02), f"class {k}", ha="center", va="bottom" if up else "top", weight="bold")
ax.set(aspect="equal", xlim=(-0.15, 1.15), ylim=(-0.08, 1.0))
ax.axis("off")
ax.legend(loc="upper left", bbox_to_anchor=(-0.02, 1.0))
ax.set_title("Four bottles of wine: probabilities (large dots) and draws (small dots)")
plt.show()

# %%
# **Take-away.** Two rows with the same probabilities can differ in how far these may be from the truth: the cloud shows
# it, the point does not.
