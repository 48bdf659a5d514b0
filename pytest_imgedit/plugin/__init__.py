"""The pytest plugin: all that imports pytest."""
