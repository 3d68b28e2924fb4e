"""Pure functions on arrays: the formulas of the theory, one block of rows at a time."""
