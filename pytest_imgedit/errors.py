"""Errors that a user can cause; each carries one line made for a person."""

from __future__ import annotations


class UsageError(Exception):
    """A bad option, config, suite, GPU list or store: the run exits 4 with this one line."""


class ImageError(ValueError):
    """An image that cannot be used; the pair it belongs to ends in an error, the others go on."""


class ReplyError(ValueError):
    """A judge's reply that does not follow the rubric's format."""


class SetupError(Exception):
    """An editor or judge that refuses its settings while it loads: no job can run with it."""
