"""Processes that hold one editor or judge each."""
