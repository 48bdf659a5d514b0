"""What the user set: the option table, the TOML files, and the checked settings that come of
them.
"""
