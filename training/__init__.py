"""How the embedded editor and judge were made: `python -m training.editor`, `.judge`, `.evaluate`."""
