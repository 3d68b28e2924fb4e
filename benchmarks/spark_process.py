"""Softmax regression in Spark: a script for an interpreter that has pyspark and NumPy, and nothing else of ours."""

from __future__ import annotations

import json
import sys
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession


def in_spark(path: str, D: int, alpha: float, turns: int) -> list[dict[str, Any]]:
    """Return the times of fits, and the coefficients they end with."""
    began = perf_counter()
    session = SparkSession.builder.master("local[2]").config("spark.driver.memory", "8g").getOrCreate()
    started = perf_counter() - began
    began = perf_counter()
    assembled = VectorAssembler(inputCols=[f"x{d}" for d in range(D)], outputCol="features")
    rows = assembled.transform(session.read.parquet(path)).select("features", "label").cache()
    N = rows.count()
    cached = perf_counter() - began
    lines = []
    for who, tol in (("Spark MLlib", 1e-6), ("Spark MLlib, tight", 1e-9)):
        fit = LogisticRegression(
            family="multinomial", regParam=alpha / N, elasticNetParam=0.0, standardization=False, tol=tol, maxIter=1000
        ).fit
        times = []
        for _ in range(1 + turns):
            began = perf_counter()
            model = fit(rows)
            times.append(perf_counter() - began)
        theta = np.column_stack([model.coefficientMatrix.toArray(), model.interceptVector.toArray()]).tolist()
        lines.append({"who": who, "first": times[0], "seconds": median(times[1:]), "theta": theta})
        lines[-1] |= {"start": started, "cache": cached, "iterations": model.summary.totalIterations}
    session.stop()
    return lines


if __name__ == "__main__":
    given = sys.argv[1:]
    print(json.dumps(in_spark(given[0], int(given[1]), float(given[2]), int(given[3]))))
