"""What a judge is asked for each category, and how its reply becomes a score."""
