"""How the embedded editor and judge were made: `python -m tools.train_embedded.editor`, `.judge`,
`.evaluate`.
"""
