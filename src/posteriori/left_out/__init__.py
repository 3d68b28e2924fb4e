"""What a classifier would have predicted for each row of its fit without that row: formulas, refits, folds."""

from posteriori.left_out.result import LeftOut

__all__ = ["LeftOut"]
