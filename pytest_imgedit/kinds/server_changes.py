"""Parameters under which a server takes a request, in place of those that it refuses."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.base import Model

M = TypeVar("M", bound=Model)

#: The field of an answer that has the address of an image in place of the image.
LINK = "url"
#: By the field that a server does not take, or that it answers with: the parameter that decides
#: about it, and its value without the field; `None` stands for no value.
_REMEDIES = {
    "temperature": ("temperature", "default"),
    "max_tokens": ("token_limit", "max_completion_tokens"),
    "max_completion_tokens": ("token_limit", "max_tokens"),
    "logprobs": ("scoring", "greedy"),
    "top_logprobs": ("scoring", "greedy"),
    "size": ("size", None),
    "response_format": ("response_format", None),
    "seed": ("send_seed", False),
    LINK: ("response_format", "b64_json"),
}
#: A key of TOML that needs no quotes.
_BARE = re.compile(r"[\w-]+", re.ASCII)


@dataclass(frozen=True)
class Changes:
    """Changes of parameters: the new `values`, `None` for a parameter that goes, and the names that
    `extra` is to be without.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.values or self.without)

    def but(self, name: str) -> "Changes":
        """Return the changes of all parameters but one."""
        return replace(self, values={key: self.values[key] for key in self.values if key != name})

    def applied(self, model: M) -> M:
        """Return a model with the changes."""
        params = {**model.params, **self.values}
        params = {name: value for name, value in params.items() if value is not None}
        if self.without:
            extra = params.get("extra", {})
            params["extra"] = {name: extra[name] for name in extra if name not in self.without}
        return replace(model, params=params)

    def without_fields(self, fields: Iterable[str], model: Model) -> "Changes":
        """Return these changes with those that keep fields out of the requests of a model; the same
        if nothing keeps them out that is not tried yet.
        """
        changes = self
        for name in fields:
            changes = changes._without_field(re.split(r"[.\[]", name)[0], model)
        return changes

    def _without_field(self, name: str, model: Model) -> "Changes":
        if name in model.params.get("extra", {}):
            without = dict.fromkeys([*self.without, name])
            return replace(self, without=tuple(without))
        parameter, value = _REMEDIES.get(name, ("", None))
        if parameter in self.values or parameter not in _parameters(model):
            return self
        if getattr(model.options, parameter) == value:
            return self
        return replace(self, values={**self.values, parameter: value})

    def advice(self, section: str) -> str:
        """Say how a config makes these changes in a section, such as `judge` or `judges.NAME`, and
        how the command line does, where it can.
        """
        kind, _, name = section.partition(".")
        is_bare = not name or _BARE.fullmatch(name) is not None
        table = section if is_bare else f'{kind}."{name}"'
        added = {key: value for key, value in self.values.items() if value is not None}
        advice: list[str] = []
        if added:
            lines = ", ".join(f"{key} = {json.dumps(value)}" for key, value in added.items())
            advice.append(f"add to [{table}]: {lines}{_on_command_line(section, added, is_bare)}")
        removed = [key for key in self.values if key not in added]
        removed += [f"extra.{key}" for key in self.without]
        if removed:
            advice.append(f"remove {' and '.join(removed)} from [{table}]")
        return "; ".join(advice)


def _parameters(model: Model) -> Iterable[str]:
    return () if model.Params is None else model.Params.model_fields


def _on_command_line(section: str, added: JsonObject, is_bare: bool) -> str:
    """Return the options that set values, in brackets; empty for a name with a dot, which no option
    can hold.
    """
    if not is_bare:
        return ""
    options = []
    for key, value in added.items():
        text = value if isinstance(value, str) else json.dumps(value)
        options.append(f"--imgedit-set={section}.{key}={text}")
    return f" ({' '.join(options)})"
