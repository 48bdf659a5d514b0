"""What a finished run shows: terminal, JSON, Markdown, HTML and GitHub."""
