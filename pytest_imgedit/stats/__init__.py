"""Statistics of scores: estimates and their errors, gates, comparison with a baseline, agreement
with people.
"""
