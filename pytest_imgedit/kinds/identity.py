"""What identifies an editor or judge, independent of its requests: its recipe, and the digest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pytest_imgedit.core import environments, redaction, strict_json, targets
from pytest_imgedit.core.files import digest
from pytest_imgedit.kinds import base, checkpoint_files, user_code

#: How many hex digits of a file's SHA-256 results record beside a parameter that names it.
SHORT = 12


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What decides the results of a `model`, apart from its requests.

    `fingerprint` is the hash of what it is made of. `params` are the parameters that decide, as the
    user wrote them. `digest` is the hash of both, with files by content; `recipe` is what is stored
    of it, without secrets. `here` is the environment in which it would compute now. `commit` is the
    commit of a hub id. `sees_pair` says that its requests hold the pair's id and category, so that
    results may depend on them. The versions of `libraries` decide too. `files` holds the SHA-256 of
    the files that parameters name, by path: workers on other hosts must find the same. `lossy` are
    parameters that trade quality for speed. `contents` are the short digests that results
    record, by path. `variant` is that of the checkpoint's weights.
    """

    model: base.Model = field(compare=False)
    fingerprint: str
    params: strict_json.JsonObject
    digest: str
    recipe: strict_json.JsonObject
    here: environments.Environment
    commit: str | None = None
    sees_pair: bool = False
    libraries: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict, compare=False)
    lossy: tuple[str, ...] = ()
    contents: dict[str, str] = field(default_factory=dict, compare=False)
    variant: str | None = None

    @property
    def told(self) -> strict_json.JsonObject:
        """What results record: `fingerprint`, `recipe`, `commit`, `params` without secrets and with
        the variant of the weights, `files` by their short digests, `dtype`.
        """
        params = redaction.mask_secrets(self.params)
        if self.variant is not None:
            params["variant"] = self.variant
        return {
            "fingerprint": self.fingerprint,
            "recipe": self.digest,
            "commit": self.commit,
            "params": params,
            "files": self.contents,
            "dtype": self.recipe.get("dtype"),
        }

    def code_beside(self, loaded: Mapping[str, str]) -> dict[str, str]:
        """Return those digests of the code that a worker has loaded, by file, that are not in the
        recipe.
        """
        recorded = set(self.recipe.get("code", {}).values())
        return {path: sha256 for path, sha256 in loaded.items() if sha256 not in recorded}


def identify(model: base.Model, cache: Path, where: base.Where | None = None) -> Identity:
    """Return the identity of an editor or judge that would compute at `where`, by default in this
    process.

    `cache` is the file that remembers digests. Raises `UsageError` if a file of the model is
    missing.
    """
    return _identify(model, checkpoint_files.Digests(cache), where or base.Where())


def sketch(model: base.Model, cache: Path, where: base.Where | None = None) -> Identity | None:
    """Return the identity of a model without the digests for which files are to be read; `None` if
    there are none. It tells where the model would compute, not what it consists of.

    Takes what `identify` takes, and raises what it raises.
    """
    digests = checkpoint_files.KnownDigests(cache)
    identity = _identify(model, digests, where or base.Where())
    return identity if digests.lacks else None


def _identify(model: base.Model, digests: checkpoint_files.Digests, where: base.Where) -> Identity:
    is_custom = model.target.is_custom
    sources: Mapping[str, Path] = {}
    composition = model.compose(where, digests)
    libraries = model.requirements.packages  # those of quantised weights, which are here by then
    if is_custom:
        sources, packages = user_code.source_closure(model.target.module)
        libraries = user_code.libraries_behind(packages)
    parts = {**_code_of(model, sources), **composition.parts}
    deciding = model.deciding(where.resolved_dtype(model.params))
    named = _with_content(model, deciding, sources, digests)
    recipe = {**parts, "params": named, **composition.computation}
    if is_custom and model.checkpoint is None:
        recipe["argument"] = digests.resolved(model.target.argument)
    look_up = where.versions or partial(environments.versions_in, where.python)
    stored = recipe | {"params": redaction.mask_secrets(named)}  # a secret decides, but is not kept
    commit = None if model.checkpoint is None else model.checkpoint.commit
    return Identity(
        model=model,
        fingerprint=environments.key(parts),
        params=deciding,
        digest=environments.key(recipe),
        recipe=stored,
        here=_environment(model, where, look_up(libraries)),
        commit=commit,
        sees_pair=is_custom,
        libraries=libraries,
        files=digests.sent,
        lossy=composition.lossy,
        contents=dict(_short_digests(redaction.mask_secrets(deciding), named)),
        variant=composition.variant,
    )


def _short_digests(value: Any, content: Any) -> Iterator[tuple[str, str]]:
    """Yield each path in a parameter's value, with the beginning of the digest of what is there;
    `content` is the value with contents in place of paths.
    """
    if value == redaction.MASK:  # what a secret holds is not told
        return
    if isinstance(value, str) and isinstance(content, dict):
        digests = content["content"]
        sha256 = next(iter(digests.values())) if len(digests) == 1 else environments.key(digests)
        yield value, sha256[:SHORT]
    elif isinstance(value, dict) and isinstance(content, dict):
        for name, inner in value.items():
            yield from _short_digests(inner, content[name])
    elif isinstance(value, list | tuple) and isinstance(content, list):
        for inner, of_inner in zip(value, content, strict=True):
            yield from _short_digests(inner, of_inner)


def _with_content(
    model: base.Model,
    deciding: strict_json.JsonObject,
    sources: Mapping[str, Path],
    digests: checkpoint_files.Digests,
) -> strict_json.JsonObject:
    """Return the deciding parameters, and those defaults of a custom class that name files, with
    the content of each file in place of its name.
    """
    named: strict_json.JsonObject = {}
    for name, value in deciding.items():
        if model.target.is_custom or name in model.names_files:
            named[name] = digests.resolved(value)
        else:
            named[name] = checkpoint_files.canonical(value)
    # the code says what a default is, but not what a file holds that the default names
    for name, value in user_code.class_defaults(sources.values(), model.target.attribute).items():
        if name not in deciding:
            content = digests.resolved(value)
            if content != checkpoint_files.canonical(value):
                named[name] = content
    return named


def _environment(
    model: base.Model, where: base.Where, versions: dict[str, str]
) -> environments.Environment:
    if model.is_served:
        return environments.Environment(device="server", versions=versions)
    return environments.Environment(
        device=where.device, gpu=where.gpu, versions=versions, threads=where.threads
    )


def _code_of(model: base.Model, sources: Mapping[str, Path]) -> strict_json.JsonObject:
    """Return the class and its code: the digests of the user's sources, or for a class of this
    package the revision that all its classes share. The reference that it is shown counts too.

    A class of this package is the kind's `worker`, even if workers build another one that shares it
    between GPUs.
    """
    is_custom = model.target.is_custom
    target = model.target if is_custom else targets.Target.of(model.worker)
    parts: strict_json.JsonObject = {"class": f"{target.module}:{target.attribute}"}
    if model.shown_reference is not None:
        parts["shown"] = model.shown_reference
    if is_custom:
        parts["code"] = {name: digest(path) for name, path in sorted(sources.items())}
    else:
        parts["revision"] = base.REVISION
    return parts
