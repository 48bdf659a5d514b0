"""Plan, edit, swap, score: what a run does, in order."""
