"""Keeps secrets out of everything that is written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MASK = "***"
#: Shorter values are words that stand in other places too.
MIN_LENGTH = 8
_WORDS = r"(?:(?:api|access|private|auth)key|token|credential|password|passwd|passphrase|authorization|cookie)s?"
_SECRET = re.compile(rf"secret|{_WORDS}$")
#: Variables of a host's spec, see `workers/remote/ssh.py`.
_ENV = re.compile(r"env:([^=:]+)=(.*?)(?=//|$)")
_SHORT = re.compile(r"(?:^|[_-])(?:key|pass|pwd|auth)$", re.IGNORECASE)


#: What is a secret by its shape: credentials in a URL or DSN, what follows an authorization scheme, tokens of services.
_SHAPES = re.compile(
    r"(?<=://)[^/\s:@'\"]*:[^/\s@'\"]+(?=@)"
    r"|(?<=Bearer )[\w.~+/=-]{8,}|(?<=Basic )[\w+/=-]{8,}"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abeprs]-)[\w-]{10,}"
    r"|\bA[KS]IA[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|(?<![\w-])eyJ[\w-]+\.[\w-]+\.[\w-]+"
)


def mask_shapes(text: str) -> str:
    """Hide what is a secret by its shape, wherever it stands in a text."""
    return _SHAPES.sub(MASK, text)


def is_secret(name: str) -> bool:
    """Tell whether a variable or parameter of this name holds a secret: `HF_TOKEN`, `x-api-key`, `accessToken`."""
    return bool(_SECRET.search(re.sub(r"[^a-z]", "", name.lower())) or _SHORT.search(name))


def mask_variables(host: str) -> str:
    """Return the spec of a host without the values of its variables."""
    return _ENV.sub(rf"env:\1={MASK}", host)


def mask_secrets(params: Mapping[str, Any]) -> dict[str, Any]:
    """Hide secrets in the values of parameters, by name and by shape, inside tables too; a number is none."""
    return {
        name: MASK if is_secret(name) and not isinstance(value, int | float) else _mask_inside(value)
        for name, value in params.items()
    }


def _mask_inside(value: Any) -> Any:
    if isinstance(value, str):
        return mask_shapes(value)
    if isinstance(value, dict):
        return mask_secrets(value)
    return [_mask_inside(one) for one in value] if isinstance(value, list) else value


def server_key(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the key of the server that an editor or judge asks, where its variable has a name of its own."""
    return {"key": os.environ.get(str(params.get("api_key_env")), "")}


def host_variables(host: str) -> dict[str, str]:
    """Return the environment variables that the spec of a host sets, by name."""
    return dict(_ENV.findall(host))


class Redactor:
    """Replaces secrets wherever they turn up: those of an environment and of parameters, known by their names, and what
    has the shape of one.
    """

    def __init__(self, *sources: Mapping[str, Any]) -> None:
        lines = {line for source in sources for value in _secrets(source) for line in value.splitlines()}
        long = {line for line in lines if len(line) >= MIN_LENGTH}
        written = {form for line in long for form in (line, repr(line)[1:-1], json.dumps(line)[1:-1])}
        self._secrets = sorted(written, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return mask_shapes(text)


def _secrets(source: Mapping[str, Any]) -> Iterator[str]:
    for name, value in source.items():
        if is_secret(name):
            yield from map(str, _leaves(value))
        elif isinstance(value, dict):
            yield from _secrets(value)
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    yield from _secrets(one)


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [leaf for one in inner for leaf in _leaves(one)]
    return [value]
