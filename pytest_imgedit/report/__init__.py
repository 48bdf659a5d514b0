"""What a run shows: progress while it runs, then terminal, JSON, Markdown and HTML."""
