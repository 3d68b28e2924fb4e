"""Tables as text: what is between the values, and what the values are.

    bytes -> dialects (marks, quotes, names) -> text -> columns (tallies, merged over batches) -> forms -> typed columns

JSON and Excel files go the same way: `records` makes text of their values.
"""

from posteriori.tables.text.columns import ChosenForm, Tally, choose, convert, misfit_rows, tally
from posteriori.tables.text.dialects import Dialect, find_dialect, larger, ragged_line, text_batches
from posteriori.tables.text.forms import CATEGORY, TextForm
from posteriori.tables.text.records import excel_records, json_records

__all__ = [
    "CATEGORY",
    "ChosenForm",
    "Dialect",
    "Tally",
    "TextForm",
    "choose",
    "convert",
    "excel_records",
    "find_dialect",
    "json_records",
    "larger",
    "misfit_rows",
    "ragged_line",
    "tally",
    "text_batches",
]
