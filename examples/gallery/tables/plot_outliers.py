"""
Rows unlike all others
======================

Gaussian classes describe how rows are distributed, not only which class they belong to. ``score_samples`` is the log
density of a row under all classes together: the lowest are outliers, however sure the predicted class may be.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import posteriori as po

penguins = pd.read_csv(files("posteriori.tables") / "bundled" / "penguins.csv").dropna()
X, y = penguins[["bill_length_mm", "bill_depth_mm"]].to_numpy(), penguins["species"].to_numpy()
model = po.GaussianClassifier("full").fit(X, y)
strange = np.array([[70.0, 13.0], [34.0, 12.0], [45.0, 24.0]])  # three birds that are none of these

# %%
# The colour is the log density, the numbers are the probability of the predicted species.

length, depth = np.linspace(28, 82, 150), np.linspace(11, 25.5, 150)
density = model.score_samples(np.stack(np.meshgrid(length, depth), axis=-1).reshape(-1, 2)).reshape(150, 150)

fig, ax = plt.subplots(figsize=(8, 5.2), layout="constrained")
shown = ax.contourf(length, depth, np.maximum(density, -25), levels=12, cmap="Blues")
for k, species in enumerate(model.classes_):
    ax.scatter(*X[y == species].T, s=12, color=["C6", "C1", "C2"][k], edgecolor="white", linewidth=0.4, label=species)
ax.scatter(*strange.T, s=90, marker="X", color="C3", edgecolor="white", label="strange birds")
for place, P in zip(strange, model.predict_proba(strange), strict=True):
    ax.annotate(
        f"{model.classes_[P.argmax()]} {P.max():.0%}", place, xytext=(9, 0), textcoords="offset points", va="center"
    )
ax.set(xlabel="bill length, mm", ylabel="bill depth, mm", xlim=(28, 82))
ax.set_title("Far from all species, a species may still look certain")
fig.legend(loc="outside lower center", ncols=4)
fig.colorbar(shown, label="log density")
plt.show()

# %%
# **Take-away.** A probability compares classes with each other; look at ``score_samples`` too if a row may be of none
# of them.
