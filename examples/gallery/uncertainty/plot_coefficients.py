"""
Coefficients with intervals
===========================

Which measurements tell penguins apart, and how sure is that? ``summary`` has a row for each class and feature, with
the mean of the posterior and an interval. With ``coding="sum"`` a coefficient is the difference of a class from the
mean of all.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import posteriori as po

penguins = pd.read_csv(files("posteriori.tables") / "bundled" / "penguins.csv").dropna()
features = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
X = penguins[features]
X = (X - X.mean()) / X.std()  # so that coefficients of all features can be compared
model = po.BayesianSoftmaxRegression().fit(X, penguins["species"])
table = model.summary("sum")
table = table[table["feature"].isin(features)]
print(table.round(2).to_string(index=False))

# %%
# A point is the mean, its line the 95 % interval.

fig, ax = plt.subplots(layout="constrained")
place = np.arange(len(features))
for k, (species, part) in enumerate(table.groupby("class")):
    error = [part["mean"] - part["lower"], part["upper"] - part["mean"]]
    ax.errorbar(part["mean"], place + 0.2 * (k - 1), xerr=error, fmt="o", color=f"C{k}", label=species)
ax.axvline(0, color="0.6", linewidth=1, zorder=0)
ax.set_yticks(place, [name.rsplit("_", 1)[0].replace("_", " ") for name in features])
ax.invert_yaxis()
ax.set(xlim=(-14, 18), xlabel="change of the logit per standard deviation")
ax.set_title("What speaks for each species of penguin, with 95 % intervals")
ax.legend(loc="lower right")
plt.show()

# %%
# **Take-away.** An interval that holds 0 says that the data have not settled the sign of an effect; it does not say
# that there is no effect.
