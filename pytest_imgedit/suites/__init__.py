"""Where pairs come from."""
