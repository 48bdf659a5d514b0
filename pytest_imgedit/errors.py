"""Errors that a user can cause; each carries one line made for a person."""

from __future__ import annotations


class UsageError(Exception):
    """A bad option, config, suite, GPU list or store: the run exits 4 with this one line."""


class ImageError(ValueError):
    """An image that cannot be used; the pair it belongs to ends in an error, the others go on."""


class OutputError(ValueError):
    """What an editor returned is no edit: not an image, not finite, blank, or of an impossible size."""


class ReplyError(ValueError):
    """A judge's reply that does not follow the rubric's format."""


class StoreError(UsageError):
    """The store cannot be written, such as on a full disk: the run stops, what is stored already stays."""


class SetupError(Exception):
    """An editor or judge that refuses its settings while it loads: no job can run with it."""
