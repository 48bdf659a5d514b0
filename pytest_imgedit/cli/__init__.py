"""The command line `imgedit`: looks at finished runs, and at this machine; edits and judges
nothing.
"""
