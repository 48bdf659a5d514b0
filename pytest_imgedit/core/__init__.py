"""The vocabulary: what everything else speaks of."""
