"""
More rows than a batch
======================

A Parquet data set is read batch by batch. What a model needs of its rows is a sum, so the result is that of a fit in
memory. Features of up to 64 MB, like these, are read once and kept; larger ones are read again in each pass.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import posteriori as po

rng = np.random.default_rng(0)
n, D = 400_000, 6
X = rng.normal(size=(n, D))
y = (X @ rng.normal(size=(3, D)).T + rng.gumbel(size=(n, 3))).argmax(axis=1)

folder = tempfile.TemporaryDirectory()
columns = {f"x{d}": X[:, d] for d in range(D)} | {"kind": y}
for part in range(8):  # eight files, as a long measurement leaves them
    rows = slice(part * n // 8, (part + 1) * n // 8)
    piece = pa.table({name: values[rows] for name, values in columns.items()})
    pq.write_table(piece, Path(folder.name) / f"part-{part}.parquet", row_group_size=10_000)

# %%
# The data set goes to ``fit`` in place of a table; the target is the name of a column.

streamed = po.BayesianSoftmaxRegression(1.0).fit(ds.dataset(folder.name), "kind")
in_memory = po.BayesianSoftmaxRegression(1.0).fit(X, y)
difference = np.abs(streamed.coef_ - in_memory.coef_).max()
print(f"passes over the rows: {streamed.solution_.n_passes}; largest difference of a coefficient: {difference:.0e}")
folder.cleanup()

# %%
# Twelve coefficients against class 0, from memory and from the eight files. Intervals of so many rows are narrower than
# the marks.

fig, ax = plt.subplots(layout="constrained")
for name, model, style in [("in memory", in_memory, "o"), ("eight files", streamed, ".")]:
    table = model.summary("reference").query("feature != '(intercept)'")
    size = 13 if style == "o" else 7
    colour = {"o": "C5", ".": "C6"}[style]
    ax.plot(table["mean"].to_numpy(), style, markersize=size, color=colour, label=name)
labels = [f"{name}\nclass {k}" for k, name in zip(table["class"], table["feature"], strict=True)]
ax.set_xticks(range(len(labels)), labels, fontsize=9)
ax.axhline(0, color="0.6", linewidth=1, zorder=0)
ax.set(ylabel="coefficient against class 0", title="400,000 rows in memory or read from files: the same coefficients")
ax.legend()
plt.show()

# %%
# **Take-away.** Pass a ``pyarrow.dataset`` where you would pass a table: the optimum, its covariance and the evidence
# are the same.
