"""What CI needs for a benchmark: packages, a workflow, and the keys of servers."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from pytest_imgedit.config.settings import EditorSettings, JudgeSettings, Settings
from pytest_imgedit.core import errors, provenance, versions
from pytest_imgedit.kinds.base import Model, Role
from pytest_imgedit.kinds.registry import kind_of, make_model

_PACKAGE = "pytest-imgedit"
FILES = {"github": Path(".github/workflows/image-editing.yml"), "gitlab": Path(".gitlab-ci.yml")}
#: Extras of this package, by the packages that they install.
_EXTRAS = {
    "gguf": "gguf",
    "openai": "openai",
    "peft": "lora",
    "pyarrow": "data",
    "ray": "ray",
    "torchao": "fp8",
    "torchmetrics": "metrics",
}
#: What changes in a workflow that runs on a machine with GPUs.
_ON_GPUS = {
    "runs-on: ubuntu-latest": "runs-on: [self-hosted, gpu]",
    "  image: python:3.12\n": "  image: python:3.12\n  tags: [gpu]\n",
    " --extra-index-url https://download.pytorch.org/whl/cpu": "",
}
#: After this, the step of a workflow that runs pytest has its environment.
_LAST_OF_STEP = "--junitxml=report/junit.xml\n"
_USED_SECRET = re.compile(r"\bsecrets\.(\w+)")
#: Names of variables that a workflow can hold as they are.
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: This package in a file of requirements, with its extras.
_REQUIREMENT = re.compile(
    r"^(?P<name>pytest[-_.]imgedit)(?![\w.-])(?:[ \t]*\[(?P<extras>[^\]\n]*)\])?", re.M | re.I
)
_SHIPPED = files("pytest_imgedit.benchmark")
_LOCAL_HOSTS = re.compile(r"localhost|127\.[\d.]+|::1|0\.0\.0\.0")


@dataclass(frozen=True)
class Needs:
    """What the models of a config need: `packages` that only extras of this package install,
    `keys` (the environment variables that hold keys of servers), and the roles of models whose
    servers are on this machine.
    """

    packages: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    served_here: tuple[Role, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return what editor, judges, metrics, suite and executor need.

        A server on this machine is not asked for a key.
        """
        models: list[tuple[Role, EditorSettings | JudgeSettings]] = [
            ("editor", settings.editor),
            ("judge", settings.judge),
        ]
        models += [
            (entry.role, entry.settings.judge) for entry in settings.additional_scorers.values()
        ]
        packages: set[str] = set()
        keys: dict[str, None] = {}  # in the order of the config
        served_here: dict[Role, None] = {}
        for role, section in models:
            packages |= _packages(role, section.spec, section.params)
            kind = kind_of(role, section.spec)
            if kind is None or not kind.is_served:
                continue
            packages.add("openai")
            if _LOCAL_HOSTS.fullmatch(_host(section.spec)):
                served_here[role] = None
                continue
            key = _key_of(kind, section.params)
            if key is not None:
                keys[key] = None
        if settings.suite.spec.lower().endswith(".parquet"):
            packages.add("pyarrow")
        if settings.workers.executor == "ray":
            packages.add("ray")
        return cls(tuple(sorted(packages & _EXTRAS.keys())), tuple(keys), tuple(served_here))

    @property
    def extras(self) -> list[str]:
        return sorted(_EXTRAS[package] for package in self.packages)


def _packages(role: Role, spec: str, params: Mapping[str, Any]) -> set[str]:
    """Return the packages that a model needs; an empty set if it is missing or set wrongly."""
    try:
        return set(make_model(role, spec, params).requirements.packages)
    except errors.UsageError:
        return set()


def _host(spec: str) -> str:
    try:
        return urlsplit(spec.partition(":")[2]).hostname or ""
    except ValueError:
        return ""


def _key_of(kind: type[Model], params: Mapping[str, Any]) -> str | None:
    """Return the environment variable that holds the key of a server.

    It is `None` if the kind of model takes no key, or if no variable can have that name.
    """
    fields = kind.Params.model_fields if kind.Params else {}
    if "api_key_env" not in fields:
        return None
    name = str(params.get("api_key_env", fields["api_key_env"].default))
    return name if _VARIABLE.fullmatch(name) else None


def requirement(extras: Sequence[str]) -> str:
    """Return the requirement by which CI installs this package as it is installed here."""
    origin = json.loads(distribution(_PACKAGE).read_text("direct_url.json") or "null")
    name = f"{_PACKAGE}[{','.join(extras)}]" if extras else _PACKAGE
    return of_origin(origin, name)


def with_extras(text: str, extras: Iterable[str]) -> str:
    """Return a file of requirements with extras added to this package.

    The text stays as it is if the package has all of them, or if the file does not name it.
    """
    match = _REQUIREMENT.search(text)
    known = _extras_of(match)
    new = [name for name in extras if name not in known]
    if match is None or not new:
        return text
    names = known + new
    return f"{text[: match.start()]}{match['name']}[{','.join(names)}]{text[match.end() :]}"


def lacking(text: str, needs: Needs) -> list[str]:
    """Return the packages that a file of requirements names neither directly nor by an extra."""
    known = _extras_of(_REQUIREMENT.search(text))
    return [name for name in needs.packages if _EXTRAS[name] not in known and name not in text]


def _extras_of(match: re.Match[str] | None) -> list[str]:
    names = "" if match is None else match["extras"] or ""
    return [name.strip() for name in names.split(",") if name.strip()]


def of_origin(origin: Any, name: str = _PACKAGE) -> str:
    """Return the requirement for a `direct_url.json` (PEP 610).

    `origin` is `None` for a package from an index, which leaves no such file; it gets this version.
    A folder that is a clone is named by its remote and commit, if both are known.
    """
    if origin is None:
        return f"{name}=={versions.__version__}"
    url: str = origin["url"]
    version_control = origin.get("vcs_info")
    if version_control:
        url = f"{version_control['vcs']}+{url}@{version_control['commit_id']}"
    elif "dir_info" in origin:
        folder = Path(unquote(urlsplit(url).path))
        url = _remote(folder) or url
    return f"{name} @ {url}"


def is_local(text: str) -> bool:
    """Tell whether a file of requirements takes this package from a file on this machine."""
    match = _REQUIREMENT.search(text)
    if match is None:
        return False
    line, _, _ = text[match.start() :].partition("\n")
    return "file:" in line


def _remote(folder: Path) -> str | None:
    """Return the URL of the remote of a clone, with the commit that is checked out, as pip takes
    it; `None` for a folder that is no clone, or whose remote is on this machine.
    """
    remote = provenance.git("-C", str(folder), "remote", "get-url", "origin")
    commit = provenance.git("-C", str(folder), "rev-parse", "HEAD")
    if not remote or not commit or remote.startswith(("/", ".", "file:")):
        return None
    if "://" not in remote:  # user@host:path, as for ssh
        remote = f"ssh://{remote.replace(':', '/', 1)}"
    return f"git+{remote}@{commit}"


def systems(ci: str) -> tuple[list[str], str]:
    """Return the CI systems to write a workflow for, and a note for the user or an empty text.

    `ci` is a system, `none`, or `auto`: the systems in use, or GitHub. In a folder of a repository
    there are none, since a workflow counts at its top alone.
    """
    if ci == "none":
        return [], ""
    top = provenance.git("rev-parse", "--show-toplevel")
    if top and Path(top).resolve() != Path.cwd().resolve():
        return [], f"no workflow written: CI systems read workflows in {top} only"
    if ci != "auto":
        return [ci], ""
    used = _systems_in_use()
    if used:
        return used, ""
    return ["github"], (
        "workflow for GitHub, since no git remote names GitLab; for GitLab: imgedit init "
        "--ci=gitlab"
    )


def _systems_in_use() -> list[str]:
    """Return the CI systems that the host of the git remote names, or else those that have their
    workflow file here.
    """
    remote = provenance.git("remote", "get-url", "origin") or ""
    address = remote.partition("://")[2] or remote  # user@host:path has no scheme
    user_and_host = address.partition("/")[0]
    host = user_and_host.rpartition("@")[2].partition(":")[0]
    named = [name for name in FILES if name in host]
    return named or [name for name, path in FILES.items() if os.path.lexists(path)]


def workflow(system: str, on_gpus: bool, keys: Iterable[str] = ()) -> str:
    """Return the workflow for a CI system, for a machine with GPUs if `on_gpus`.

    The step that runs pytest gets the `keys` from secrets of the same names. A GitLab job gets the
    variables of its project anyway.
    """
    text = _SHIPPED.joinpath("ci", f"{system}.yml").read_text("utf-8")
    if on_gpus:
        for of_cpu, of_gpus in _ON_GPUS.items():
            text = text.replace(of_cpu, of_gpus)
    lines = "".join(f"          {_secret(key)}\n" for key in keys)
    if system == "github" and lines:
        text = text.replace(_LAST_OF_STEP, f"{_LAST_OF_STEP}        env:\n{lines}")
    return text


def with_keys(text: str, system: str, keys: Sequence[str]) -> str:
    """Return the workflow with these keys in place of its own.

    A text that `workflow` does not make, such as one that a user has edited, stays as it is.
    """
    before = _USED_SECRET.findall(text)
    for on_gpus in (False, True):
        if text == workflow(system, on_gpus, before):
            return workflow(system, on_gpus, keys)
    return text


def key_to_do(system: str, text: str, key: str) -> Iterator[str]:
    """Say how to give a key to the jobs of a CI system, whose workflow is `text`."""
    path = FILES[system]
    if system == "gitlab":
        yield (
            f"to do once: add the variable {key} in GitLab: Settings > CI/CD > Variables, masked; "
            "protected only if CI runs on protected branches alone"
        )
        return
    if key not in _USED_SECRET.findall(text):
        yield f"to do: add to the env of the step that runs pytest in {path}: {_secret(key)}"
    yield (
        f"to do once: add the secret {key} in GitHub: gh secret set {key}, or Settings > Secrets "
        "and variables > Actions"
    )


def _secret(key: str) -> str:
    return f"{key}: ${{{{ secrets.{key} }}}}"
