"""Data and numbers that nobody prepared: does everything hold, or say clearly why it does not?"""
