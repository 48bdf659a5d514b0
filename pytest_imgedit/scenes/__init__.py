"""The embedded suite: drawn pairs with a known right answer."""
