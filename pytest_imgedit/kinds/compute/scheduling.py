"""Builds the scheduler of a pipeline that `editor.scheduler` describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import diffusers

from pytest_imgedit.core import errors
from pytest_imgedit.core.text import one_line
from pytest_imgedit.kinds import schedulers

if TYPE_CHECKING:
    from pytest_imgedit.kinds.diffusers_parameters import DiffusersParameters


def built_scheduler(model: str, options: DiffusersParameters) -> dict[str, Any]:
    """Return the component `scheduler` of a pipeline's folder with `options.scheduler` laid over
    it; nothing if that is empty.

    Raises `SetupError` for a table that is wrong or that the class refuses.
    """
    if not options.scheduler:
        return {}
    scheduler = schedulers.scheduler_of(model, options.scheduler)
    try:
        schedulers.check(model, options.scheduler, options.model_extra or {})
        built: Any = getattr(diffusers, scheduler.name)
        return {"scheduler": built.from_config(dict(scheduler.base), **scheduler.given)}
    except errors.SettingError as problem:
        raise errors.SetupError(f"editor.{problem.key}: {problem}") from None
    except (ImportError, ValueError, TypeError, NotImplementedError) as error:
        raise errors.SetupError(
            f"editor.scheduler: {scheduler.name}: {type(error).__name__}: {one_line(error)}"
        ) from error
