"""Data and numbers that nobody prepared: everything holds, or says clearly why it does not."""
