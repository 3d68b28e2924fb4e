"""The work of TableEncoder: columns of any kind become numbers, by rules that are fixed in one pass over the rows.

    source -> columns (read) -> summaries (merged over batches) -> planning -> plans -> applying -> numbers

Every column is read through Arrow, so that pandas, polars and Arrow share one set of rules. Summaries are of bounded
size and merge, so that a data set need never be in memory as a whole. What is kept after the fit, `Encoding`, is made
of plain values. The rules are stated in docs/tables.md.
"""

from posteriori.data.encoding.applying import encode
from posteriori.data.encoding.columns import Column, read_column
from posteriori.data.encoding.dask_frame import encode_dask, summarise_dask
from posteriori.data.encoding.dataset import EncodedDataset
from posteriori.data.encoding.planning import plan_encoding
from posteriori.data.encoding.plans import (
    CategoryPlan,
    ColumnEncoding,
    DatePlan,
    Encoding,
    NumberPlan,
    describe_encoding,
)
from posteriori.data.encoding.source import Source, open_source
from posteriori.data.encoding.summaries import Moments, Summary, merge_summaries, summarise, summarise_source

__all__ = [
    "CategoryPlan",
    "Column",
    "ColumnEncoding",
    "DatePlan",
    "EncodedDataset",
    "Encoding",
    "Moments",
    "NumberPlan",
    "Source",
    "Summary",
    "describe_encoding",
    "encode",
    "encode_dask",
    "merge_summaries",
    "open_source",
    "plan_encoding",
    "read_column",
    "summarise",
    "summarise_dask",
    "summarise_source",
]
