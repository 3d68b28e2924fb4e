"""Messy tables: columns of any kind become numbers, by rules that are fixed in one pass over the rows.

    files -> sources -> columns (read) -> summaries (merged over batches) -> plans -> encode -> numbers

Every column is read through Arrow, so that pandas, polars and Arrow share one set of rules. Summaries are of bounded
size and merge, so that a data set need never be in memory as a whole. What is kept after the fit, `Encoding`, is made
of plain values. The rules are stated in docs/tables.md.
"""
