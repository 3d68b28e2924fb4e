"""Tables as text: what is between the values, and what the values are.

    bytes -> dialects (marks and names) -> rows of text -> columns (tallies, which merge) -> choices (forms) -> types

JSON and Excel files go the same way: `records` makes text of their values.
"""

from posteriori.tables.text.choices import ChosenForm, choose
from posteriori.tables.text.dialects import find_dialect
from posteriori.tables.text.records import excel_records, json_records

__all__ = ["ChosenForm", "choose", "excel_records", "find_dialect", "json_records"]
