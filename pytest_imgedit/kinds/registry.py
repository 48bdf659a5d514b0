"""From specs such as `diffusers:MODEL` or `package.module:Class` to what they name; imports nothing
early.
"""

import ast
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from pytest_imgedit.core import errors, files, targets
from pytest_imgedit.core.text import did_you_mean, one_line
from pytest_imgedit.kinds import base, class_attributes, method_checks, user_code

#: Kinds of this package by role and name, as entry points of other packages have them.
BUILTIN: Mapping[str, Mapping[str, str]] = {
    "editor": {
        "blank": "pytest_imgedit.kinds.controls:Blank",
        "blend": "pytest_imgedit.kinds.controls:Blend",
        "damaged": "pytest_imgedit.kinds.controls:Damaged",
        "diffusers": "pytest_imgedit.kinds.diffusers:Diffusers",
        "folder": "pytest_imgedit.kinds.folder:Folder",
        "identity": "pytest_imgedit.kinds.controls:IdentityControl",
        "noise": "pytest_imgedit.kinds.controls:NoiseControl",
        "openai-images": "pytest_imgedit.kinds.openai_images:OpenAIImages",
        "oracle": "pytest_imgedit.kinds.controls:Oracle",
        "scenes": "pytest_imgedit.kinds.scenes:ScenesEditor",
        "shuffled": "pytest_imgedit.kinds.controls:Shuffled",
    },
    "judge": {
        "none": "pytest_imgedit.kinds.reference:NoJudge",
        "openai": "pytest_imgedit.kinds.openai:OpenAI",
        "qwen-vl": "pytest_imgedit.kinds.qwen_vl:QwenVL",
        "reference": "pytest_imgedit.kinds.reference:Reference",
        "scenes": "pytest_imgedit.kinds.scenes:ScenesJudge",
    },
    "metric": {
        "clip-image": "pytest_imgedit.kinds.learned_metrics:CLIPImage",
        "clip-text": "pytest_imgedit.kinds.learned_metrics:CLIPText",
        "dino": "pytest_imgedit.kinds.learned_metrics:DINO",
        "http-score": "pytest_imgedit.kinds.http_score:HTTPScore",
        "lpips": "pytest_imgedit.kinds.learned_metrics:LPIPS",
        "psnr": "pytest_imgedit.kinds.metrics:PSNR",
        "ssim": "pytest_imgedit.kinds.metrics:SSIM",
    },
}
#: Kinds to guess for a spec without one: of a checkpoint or hub id, and of the name of a served
#: model.
_GUESSED = {
    "editor": ("diffusers", "openai-images"),
    "judge": ("qwen-vl", "openai"),
    "metric": ("dino", "http-score"),
}


@cache
def known(role: str) -> Mapping[str, str]:
    """Return `module:attribute` by each name that a spec of this role may begin with: names of
    installed packages and of this one, which takes precedence.
    """
    points = entry_points(group=f"pytest_imgedit.{role}s")
    return {point.name: point.value for point in points} | dict(BUILTIN.get(role, {}))


def resolve(
    role: str, spec: str, names: Mapping[str, str], hint: Callable[[str], str] | None = None
) -> tuple[str | None, str, str | None]:
    """Return what a spec names: the name, its `module:attribute`, and the text after the name's
    colon.

    A `package.module:Class`, whose source is read but not run, has no name. Raise `SpecError` if
    the spec fits nothing, with the known names and what `hint` guesses, and `UsageError` if it
    names a module that is not valid Python.
    """
    name, colon, argument = spec.partition(":")
    if name in names:
        return name, names[name], argument if colon else None
    if colon and all(part.isidentifier() for part in name.split(".") + [argument]):
        _require_definition(role, spec, names)
        return None, spec, None
    near = did_you_mean(name, names) or (hint(spec) if hint else "")
    raise errors.SpecError(
        f"unknown {role} {spec!r}, expected one of {', '.join(sorted(names))}, or "
        f"package.module:Class{near}"
    )


def _require_definition(role: str, spec: str, names: Mapping[str, str]) -> None:
    """Raise `SpecError` unless the module of a `package.module:Class` has a source file that
    defines the class; raise `UsageError` if that file is not valid Python.
    """
    module, _, class_name = spec.partition(":")
    path = user_code.source_file(module)
    if path is None or not path.is_file():
        searched = ", ".join(dict.fromkeys(user_code.user_import_paths()))
        fix = "; move it to one of these, or add its folder to PYTHONPATH"
        raise errors.SpecError(
            f"{role} {spec!r}: no module {module!r} with a source file in {searched}"
            f"{did_you_mean(module, names) or fix}"
        )
    try:
        defined = user_code.top_level_names(path)
    except (SyntaxError, ValueError) as error:
        raise errors.UsageError(
            f"{path}:{getattr(error, 'lineno', None) or 1}: {one_line(error)}, expected a "
            f"Python module for {role} {spec!r}"
        ) from None
    if class_name not in defined:
        raise errors.SpecError(
            f"{role} {spec!r}: {path} defines no {class_name!r}{did_you_mean(class_name, defined)}"
        )


#: The editor and the judge of a run that names none.
DEFAULT = "scenes"


def make_model(role: base.Role, spec: str, params: Mapping[str, Any], gpus: int = 1) -> base.Model:
    """Return the editor, judge or metric that a spec names, for workers of `gpus` GPUs each; raise
    `UsageError` if there is none.
    """
    name, path, argument = resolve(role, spec, known(role), lambda text: _guess(role, text))
    if name is None:
        return CUSTOM[role](spec, None, dict(params), gpus)
    return kind_at(role, name, path).of(spec, argument, params, gpus)


def kind_of(role: base.Role, spec: str) -> type[base.Model] | None:
    """Return the kind that a spec begins with; `None` for a custom class and for an unknown name.
    Raise `UsageError` as `kind_at` does.
    """
    name, _, _ = spec.partition(":")
    path = known(role).get(name)
    return None if path is None else kind_at(role, name, path)


def kind_at(role: base.Role, name: str, path: str) -> type[base.Model]:
    """Return the kind `name`, imported from its `module:attribute`; raise `UsageError` if it cannot
    be imported or is not a kind of this role.
    """
    module, _, attribute = path.partition(":")
    try:
        kind = getattr(import_module(module), attribute)
    except Exception as error:  # a module of another package can raise anything
        raise errors.UsageError(
            f"{role} {name!r}: {path}: {type(error).__name__}: {one_line(error)}"
        ) from None
    if not (isinstance(kind, type) and issubclass(kind, base.Model) and kind.role == role):
        raise errors.UsageError(
            f"{role} {name!r}: its entry point names {path}, expected a subclass of "
            f"pytest_imgedit.Model whose role is {role!r} (a class that edits or judges is named "
            "by package.module:Class)"
        )
    return kind


def _guess(role: base.Role, spec: str) -> str:
    """Return a question that guesses what a spec without a kind was meant to be, a checkpoint or
    hub id or the name of a served model; empty for anything else.
    """
    local, served = _GUESSED[role]
    if "/" in spec or files.is_folder(Path(spec)):
        return f"; did you mean '{local}:{spec}'?"
    if any(char.isdigit() for char in spec):
        return f"; did you mean '{served}:URL#{spec}'?"
    return ""


class CustomClass(base.Model):
    """A class that edits or judges, as the spec `package.module:Class` names it: nothing is known
    but its source.
    """

    name = "class"
    method: ClassVar[tuple[str, str]]
    """The method that a worker calls, and its argument."""

    @property
    def target(self) -> targets.Target:
        return targets.Target.parse(self.spec)

    def check(self, site: base.Site) -> None:
        super().check(site)
        path = user_code.source_file(self.target.module)
        source = method_checks.ClassSource.read(path, self.target.attribute) if path else None
        if source is not None:
            self.check_source(source)

    def check_source(self, source: method_checks.ClassSource) -> None:
        """Raise `SettingError` for a constructor or a method that no worker could call."""
        self._check_constructor(source)
        self._check_method(source, *self.method)

    def _check_constructor(self, source: method_checks.ClassSource) -> None:
        """Raise `SettingError` unless the constructor takes `device` and the parameters, and they
        give it all that it requires.
        """
        definition = source.method("__init__")
        if definition is None:
            if source.lacks("__init__") and source.lacks("__new__"):
                self._refuse(f"{source.place()}: no __init__", targets.CONSTRUCTOR)
            return
        place = source.place(definition)
        constructor = user_code.Signature.of(definition.args)
        if not (constructor.open_ended or "device" in constructor.annotations):
            self._refuse(f"{place}: {method_checks.header(definition)}", targets.CONSTRUCTOR)
        constructor.check(self.params, {"device"})  # it may be that of a base
        for name in constructor.required:
            is_missing = name != "device" and name not in self.params
            base.refuse_if(is_missing, name, f"no value, and no default in {place}")

    def _check_method(self, source: method_checks.ClassSource, name: str, argument: str) -> None:
        """Raise `SettingError` if the class lacks a method, or it does not take one argument."""
        expected = f"def {name}(self, {argument})"
        if source.lacks(name):
            self._refuse(f"{source.place()}: no method {name}", expected)
        definition = source.method(name)
        if definition is not None and not method_checks.takes_one(definition):
            self._refuse(
                f"{source.place(definition)}: {method_checks.header(definition)}", expected
            )

    def _refuse(self, found: str, expected: str) -> NoReturn:
        raise errors.SettingError(
            "spec", f"{self.role} {self.spec!r}: {found}, expected {expected}"
        )


class CustomEditor(CustomClass):
    """Your own class that edits."""

    role = "editor"
    method = ("edit", "request")
    why_fewer_sources = "a class that takes more says how many: max_sources = 3, or None for any"

    @cached_property
    def max_sources(self) -> int | None:
        """What the class sets as `max_sources` in its body: a count of at least 1, or `None`; 1
        without it.

        Raises `SettingError` for anything else, and for what only running it would tell.
        """
        files, _ = user_code.source_closure(self.target.module)
        attribute = self.target.attribute
        stated = class_attributes.statement_of(files.values(), attribute, "max_sources")
        if stated is None:
            return 1
        found = f"{stated.place}: {stated.text}"
        try:
            value: object = ast.literal_eval(stated.value or "")
        except (ValueError, SyntaxError, TypeError):
            self._refuse(
                found,
                "a number written out in the class body, such as max_sources = 3, or None: the "
                "source is read and not run",
            )
        if value is not None and not (type(value) is int and value >= 1):
            self._refuse(found, "a count of at least 1, or None")
        return value

    def check_source(self, source: method_checks.ClassSource) -> None:
        super().check_source(source)
        _ = self.max_sources  # refused here, before anything is planned
        if self.batch_size > 1:
            self._check_method(source, "edit_batch", "requests")


class CustomJudge(CustomClass):
    """Your own class that judges. It is asked one question at a time, unless it sets `batch_size`:
    then it declares that an answer does not depend on the other questions of its batch.
    """

    role = "judge"
    aspects = None
    method = ("answer", "questions")


class CustomMetric(CustomClass, base.Metric):
    """Your own class that measures."""

    method = ("answer", "questions")


#: By role, the kind of a class that is no kind.
CUSTOM: Mapping[str, type[CustomClass]] = {
    "editor": CustomEditor,
    "judge": CustomJudge,
    "metric": CustomMetric,
}
