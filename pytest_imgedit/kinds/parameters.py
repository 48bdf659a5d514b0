"""Parameters of editors and judges: one pydantic model a kind is their only declaration."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_imgedit.core.errors import SettingError, SetupError
from pytest_imgedit.core.sanitize import did_you_mean
from pytest_imgedit.core.strict_json import JsonObject

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
#: How a field is marked that is `indifferent`.
_INDIFFERENT: dict[str, Any] = {"decides": False}


def indifferent(default: Any, **rules: Any) -> Any:
    """Declare a field that says where, how fast or at what price something is computed, but not
    what.

    Stored results do not depend on it.
    """
    return Field(default=default, json_schema_extra=_INDIFFERENT, **rules)


class Parameters(BaseModel):
    """What a kind of editor or judge takes: unknown keys are refused, and no value is converted.

    Each field's description is its line in the documentation.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def parse(cls, params: JsonObject) -> Self:
        """Check parameters inside a worker; raises `SetupError` for the first that is wrong."""
        try:
            return cls.check(params)
        except SettingError as problem:
            raise SetupError(f"{problem.key}: {problem}") from None

    @classmethod
    def check(cls, params: JsonObject) -> Self:
        """Check parameters before anything starts; raises `SettingError` for the first that is
        wrong.
        """
        try:
            return cls.model_validate(params)
        except ValidationError as error:
            raise _first_problem(cls, params, error) from None

    @classmethod
    def deciding(cls, params: JsonObject) -> JsonObject:
        """Leave out the parameters that are `indifferent`, and those that are as they would be
        anyway.
        """
        fields = {name: field for name, field in cls.model_fields.items() if name in params}
        return without_defaults(
            {
                name: value
                for name, value in params.items()
                if name not in fields or fields[name].json_schema_extra != _INDIFFERENT
            },
            {name: field.get_default(call_default_factory=True) for name, field in fields.items()},
        )


class ComputeParameters(Parameters):
    """What every model takes that is computed here; see `compute/numerics.py`."""

    dtype: Dtype = indifferent(
        "auto", description='`"auto"` is bfloat16 on a GPU and float32 on the CPU'
    )
    deterministic: bool = Field(
        default=True,
        description="TF32 and reduced-precision reductions are off; each worker does one small "
        "job twice when it has loaded, and the run ends if the two differ",
    )


def without_defaults(params: JsonObject, defaults: JsonObject) -> JsonObject:
    """Leave out what is written out although it holds anyway, also 4 for 4.0 but not 1 for true."""
    return {
        name: value
        for name, value in params.items()
        if name not in defaults
        or value != defaults[name]
        or isinstance(value, bool) != isinstance(defaults[name], bool)
    }


def _first_problem(
    model: type[Parameters], params: JsonObject, error: ValidationError
) -> SettingError:
    problems = error.errors()
    first = problems[0]
    name = str(first["loc"][0])
    is_table = isinstance(params.get(name), dict)  # what is wrong is one of its keys
    path = ".".join(map(str, first["loc"])) if is_table else name
    if first["type"] == "extra_forbidden" and not is_table:
        near = did_you_mean(name, model.model_fields)
        return SettingError(path, f"no such argument is taken{near}")
    if first["type"] == "extra_forbidden":
        table: Any = model.model_fields[name].annotation
        near = did_you_mean(str(first["loc"][-1]), table.model_fields)
        return SettingError(
            path, f"no such key, expected one of {', '.join(table.model_fields)}{near}"
        )
    if first["type"] == "model_type":
        return SettingError(path, f"expected a table, found {first['input']!r}")
    ways = dict.fromkeys(problem["msg"] for problem in problems if problem["loc"][0] == name)
    return SettingError(path, f"{' or '.join(ways)}, found {first['input']!r}")
