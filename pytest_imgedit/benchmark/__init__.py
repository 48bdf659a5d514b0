"""The benchmark item that `pytest --imgedit` runs, also as `pytest --pyargs
pytest_imgedit.benchmark`.
"""
