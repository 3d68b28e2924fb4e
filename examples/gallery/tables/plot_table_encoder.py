"""
From a messy table to numbers
=============================

A table as it comes has text, dates, gaps and row numbers. :class:`~posteriori.TableEncoder` turns it into numbers by
stated rules, and ``describe`` says what became of each column, and why.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

import posteriori as po

rng = np.random.default_rng(0)
n = 300
day = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D")
shop = rng.choice(["London", "Paris", "Rome", "Oslo"], n, p=[0.4, 0.3, 0.28, 0.02])
price = np.where(rng.random(n) < 0.1, np.nan, np.exp(rng.normal(3, 0.5, n)))
logit = (
    np.where(shop == "Paris", 1.5, -0.5) + 2 * np.cos(2 * np.pi * day.day_of_year / 365) - 0.05 * np.nan_to_num(price)
)
table = pd.DataFrame(
    {
        "order_id": np.arange(1, n + 1),
        "day": day,
        "shop": shop,
        "member": rng.random(n) < 0.5,
        "price": price,
        "currency": "EUR",
        "returned": np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "yes", "no"),
    }
)
print(table.head(4).to_string(index=False))

# %%
# The encoder and a model make a pipeline; the target is a column of the table. A warning says that one column is
# constant.

model = make_pipeline(po.TableEncoder(), po.BayesianSoftmaxRegression("blocks"))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.fit(table, "returned")
print(f"{caught[0].category.__name__}: {caught[0].message}")
for column, found in model[0].describe().iterrows():
    print(f"{column:9} {found['becomes'] or 'dropped: ' + found['dropped']}")

# %%
# Each column of the table becomes one or more features, or none. The weights are those for "yes" against "no".

weights = model[-1].contrast("yes", "no")
weights = weights[weights["feature"] != "(intercept)"]
spread = np.asarray(model[0].transform(table.drop(columns="returned"))).std(axis=0)
by_name = dict(zip(model[0].get_feature_names_out(), spread, strict=True))
unit = weights["feature"].map(by_name)
weights, unit = weights[unit.notna()], unit[unit.notna()]

fig, ax = plt.subplots(figsize=(7.5, 5.2), layout="constrained")
error = unit.to_numpy() * np.array([weights["mean"] - weights["lower"], weights["upper"] - weights["mean"]])
ax.errorbar(unit * weights["mean"], weights["feature"], xerr=error, fmt="o")
ax.axvline(0, color="0.6", linewidth=1, zorder=0)
ax.invert_yaxis()
ax.set(xlabel="logit of a return, per standard deviation", title="Six columns of a table have become twelve features")
plt.show()

# %%
# **Take-away.** Hand over the table as it is, read ``describe``, and overrule it where you know better.
