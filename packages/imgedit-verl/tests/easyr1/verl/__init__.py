"""Has no DataProto, as EasyR1's package has none."""

__version__ = "0.3.3.dev0"
