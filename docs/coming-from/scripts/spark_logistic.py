"""The Spark side of docs/coming-from/spark.md.

From this folder, ``python spark_logistic.py > ../recorded/spark_logistic.txt``
prints what the page shows, and writes the numbers with all digits to
../recorded/spark_logistic.json. It needs pyspark, and Java.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession

HERE = Path(__file__).parent
BUNDLED = HERE.parents[2] / "src" / "posteriori" / "tables" / "bundled"
COLUMNS = ["area_sqft", "heating_degree_days", "cooling_degree_days"]
CLASSES = ["gas", "none", "oil", "propane", "wood"]
ALPHA = 1.0


def main() -> None:
    """Fit the multinomial model three times: without a penalty, with one per unit, and with Spark's default units."""
    homes = pd.read_csv(BUNDLED / "homes.csv.gz")
    homes[COLUMNS] /= 1000
    homes["label"] = homes["fuel"].map(CLASSES.index).astype(float)
    homes["share"] = homes["weight"] / homes["weight"].mean()
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    table = spark.createDataFrame(homes[[*COLUMNS, "label", "share"]])
    rows = VectorAssembler(inputCols=COLUMNS, outputCol="features").transform(table).cache()

    common = {"family": "multinomial", "maxIter": 1000, "tol": 1e-12}
    fits = {
        "none": LogisticRegression(regParam=0.0, **common),
        "ridge": LogisticRegression(regParam=ALPHA / len(homes), standardization=False, **common),
        "ridge_standardised": LogisticRegression(regParam=ALPHA / len(homes), **common),
        "weighted": LogisticRegression(regParam=0.0, weightCol="share", **common),
    }
    numbers = {"versions": {"pyspark": version("pyspark")}, "classes": CLASSES, "columns": COLUMNS, "alpha": ALPHA}
    for name, estimator in fits.items():
        model = estimator.fit(rows)
        coefficients = model.coefficientMatrix.toArray()
        intercepts = model.interceptVector.toArray()
        print(name)
        print(np.column_stack([coefficients, intercepts]).round(5))
        numbers[name] = {"coefficients": coefficients.tolist(), "intercepts": intercepts.tolist()}
    print("pyspark", version("pyspark"))
    (HERE.parent / "recorded" / "spark_logistic.json").write_text(json.dumps(numbers, indent=1) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
