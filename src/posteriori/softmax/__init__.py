"""Softmax regression: the linear family, from the mode with its certificate to a full posterior."""
