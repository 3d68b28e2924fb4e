"""
What is it worth to know more?
==============================

``decide`` returns the *value of information*: how much better the decision would be, on average, if the truth were
known first. It is the highest price one should pay for a test that is always right.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import posteriori as po

penguins = pd.read_csv(files("posteriori.tables") / "bundled" / "penguins.csv").dropna()
X, y = penguins[["flipper_length_mm", "bill_depth_mm"]], penguins["species"]
model = po.BayesianSoftmaxRegression().fit(X, y)

# %%
# A penguin gets the food of its species: the right one is worth 1, a wrong one costs 1. A test of its blood would tell
# the species.

utility = po.Utility([[1, -1, -1], [-1, 1, -1], [-1, -1, 1]], states=model.classes_)
flipper, depth = np.linspace(170, 235, 90), np.linspace(13, 22, 90)
grid = pd.DataFrame(np.stack(np.meshgrid(flipper, depth), axis=-1).reshape(-1, 2), columns=X.columns)
decisions = po.decide(model.predict_proba(grid), utility, classes=model.classes_)

fig, ax = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
values = decisions.value_of_information.reshape(90, 90)
shown = ax.contourf(flipper, depth, values, levels=np.arange(0, 1.41, 0.1), cmap="Blues")
for k, species in enumerate(model.classes_):
    ax.scatter(
        *X[y == species].to_numpy().T, s=14, color=["C6", "C1", "C2"][k], edgecolor="white", lw=0.4, label=species
    )
ax.set(xlabel="flipper length, mm", ylabel="bill depth, mm", title="A test is worth most where species meet")
ax.legend(loc="lower left")
fig.colorbar(shown, label="value of information")
plt.show()

worth = po.decide(model.predict_proba(X), utility, classes=model.classes_).value_of_information
print(f"at a price of 0.4 a test pays for {np.mean(worth > 0.4):.0%} of the penguins")

# %%
# **Take-away.** Test where the value of information is above the price of the test, and nowhere else.
