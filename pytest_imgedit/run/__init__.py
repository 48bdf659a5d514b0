"""One run, from checked settings to results."""
