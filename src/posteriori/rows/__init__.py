"""User input, validated once: features, targets and weights, offered in blocks of rows by one of several engines."""
