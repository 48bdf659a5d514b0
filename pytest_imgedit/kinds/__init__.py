"""What an editor or judge is to the harness; imports no torch."""
