"""Whether a loaded model is the one that its checkpoint and config describe."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pytest_imgedit.core import errors, strict_json
from pytest_imgedit.core.text import first_of, shorten

#: Where the libraries load one model from a folder, and with what further options. transformers
#: names tensors of other shapes only where they are ignored; diffusers names them in its error.
_LOADERS: tuple[tuple[str, str, strict_json.JsonObject], ...] = (
    ("diffusers.models.modeling_utils", "ModelMixin", {}),
    ("transformers.modeling_utils", "PreTrainedModel", {"ignore_mismatched_sizes": True}),
)


@contextmanager
def whole_checkpoints(folder: Path | None = None) -> Iterator[None]:
    """Require that every model that diffusers and transformers load in this block fits its
    checkpoint exactly; a library that is imported only inside it is not held to that.

    Both libraries draw random weights for a tensor that the checkpoint lacks, drop one that the
    config does not know, and only log it. Inside this block they raise `SetupError`, which names
    the source and the tensors; for a model that gets its tensors without a source it names
    `folder`. Tied tensors and those that a model class declares as ignorable may differ.
    """
    with ExitStack() as stack:
        for module, name, further in _LOADERS:
            if module in sys.modules:
                base = getattr(sys.modules[module], name)
                checked = _checked(base, further, folder)
                stack.enter_context(patch.object(base, "from_pretrained", checked))
        yield


def _checked(base: Any, further: strict_json.JsonObject, folder: Path | None) -> Any:
    """Return a classmethod that calls the `from_pretrained` of a class with the options `further`
    too, and raises `SetupError` if that fails or the weights do not fit.

    It raises errors about memory as they are. `folder` is what an error names without a source.
    """
    load = base.from_pretrained.__func__

    def from_pretrained(cls: Any, source: Any = None, *arguments: Any, **options: Any) -> Any:
        """Return what the library's own method returns; raise `SetupError` as `_checked` says."""
        wants_info = options.pop("output_loading_info", False)
        label = f"{source or folder or 'checkpoint'} ({cls.__name__})"
        try:
            model, info = load(
                cls, source, *arguments, output_loading_info=True, **further, **options
            )
        except (RuntimeError, ValueError, KeyError) as error:
            if errors.is_out_of_memory(error):
                raise
            # The first line alone names no tensor; advice follows at the end.
            reason = " ".join(str(error).partition("If you want")[0].split())
            raise errors.SetupError(f"{label}: {shorten(reason, 400)}") from error
        _require_whole(label, model, info)
        return (model, info) if wants_info else model

    return classmethod(from_pretrained)


def _require_whole(label: str, model: Any, info: strict_json.JsonObject) -> None:
    """Raise `SetupError` if loading `model` left tensors missing, unexpected or mismatched.

    `info` is what `from_pretrained(output_loading_info=True)` of both libraries returns; the
    message begins with `label`.
    """
    # A language model that serves as a text encoder has no output head.
    ignored = () if hasattr(model, "lm_head") else ("lm_head.",)
    unexpected = [key for key in info["unexpected_keys"] if not key.startswith(ignored)]
    # transformers lists the two shapes beside each name.
    mismatched = [key if isinstance(key, str) else key[0] for key in info["mismatched_keys"]]
    problems = {
        "lacks": info["missing_keys"],
        "has unexpected": unexpected,
        "has other shapes than its config for": mismatched,
    }
    deviations = [f"{problem} {_listed(keys)}" for problem, keys in problems.items() if keys]
    if info.get("error_msgs"):
        deviations.append("; ".join(map(str, info["error_msgs"]))[:300])
    if deviations:
        raise errors.SetupError(
            f"{label}: the checkpoint {' and '.join(deviations)}, expected exactly the tensors of "
            "its config"
        )


def _listed(keys: Any) -> str:
    return first_of(sorted(map(str, keys)))
