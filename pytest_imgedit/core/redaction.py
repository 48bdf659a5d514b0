"""Redaction of secrets in everything that is written."""

import html
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"
#: Shorter values are words that also occur elsewhere.
MIN_LENGTH = 8
_SECRET = re.compile(
    r"secret|(?:"
    r"(?:api|access|private|auth|account|shared|signing|encryption|master|subscription|deploy"
    r"|license)key"
    r"|token|credential|cred|password|passwd|passphrase|authorization|bearer|cookie)s?$"
)
_SHORT = re.compile(r"(?:^|[_-])(?:key|pass|pwd|auth|pat|jwt|sas|sig)$", re.IGNORECASE)
#: The position between two words of a name in camel case.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


#: Secrets by their shape: credentials in a URL, a private key, the value of an authorization
#: scheme, tokens of services.
_SHAPES = re.compile(
    r"(?<=://)[^/\s:@'\"]*:[^/\s'\"]+(?=@)|(?<=://)[\w.~+-]{20,}(?=@)"
    r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)"
    r"(?:-----END [A-Z ]{0,20}KEY(?: BLOCK)?-----|\Z)"
    r"|(?<=Bearer )[\w.~+/=-]{8,}|(?<=Basic )[\w+/=-]{8,}|(?<=Token )[\w.~+/=-]{16,}"
    r"|(?<![\w-])(?:(?:gh[pousr]_|hf_|npm_|r8_|gsk_|xai-|pplx-|tvly-|dop_v1_|[prs]k_(?:live|test)_)"
    r"[A-Za-z0-9]{20,}"
    r"|(?:github_pat_|gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent)-|sk-|xox[abeprs]-|xapp-|pypi-"
    r"|nvapi-|lsv2_|whsec_"
    r"|shp(?:at|ss)_|dckr_pat_|lin_api_|figd_|PMAK-|NRAK-|ATATT3x|AGE-SECRET-KEY-1)[\w-]{10,})"
    r"|(?<![\w-])(?:ya29|hvs|SG|dp\.[a-z]{2})\.[\w.-]{16,}|\bdapi[0-9a-f]{32}\b"
    r"|\b\d{8,10}:[\w-]{35}\b"
    r"|\bA[KS]IA[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|(?<![\w-])eyJ[\w-]+\.[\w-]+\.[\w-]+"
)
#: A header with a key; a scheme may stand before it.
_HEADER = re.compile(
    r"(?P<name>(?:authorization|api-key|auth-token)['\"]?: ?['\"]?"
    r"(?:(?:basic|bearer|token|key|apikey|digest) +)?)"
    r"[^\s'\",;*]{8,}|(?P<cookie>cookie['\"]?: ?['\"]?)[^'\"\n*]+",
    re.IGNORECASE,
)
#: The value of a name that may be that of a secret, as in DSNs, query strings, calls and JSON.
_ASSIGNED = re.compile(
    r"(?P<url>[?&])?(?<![\w.-])(?P<quote>['\"]?)"
    r"(?P<name>[\w.-]{0,40}(?:pass|passphrase|passw(?:or)?d|pwd|secret[\w.-]{0,20}|key|token|cred"
    r"|credential|bearer|cookie|authorization|pat|jwt|sas|auth|sig|signature|code)s?)"
    r"(?P=quote) ?(?P<sign>[=:]) ?"
    r"(?P<value>'[^'\n]*'|\"[^\"\n]*\"|[^\s;&,'\"<>()\[\]{}]+)",
    re.IGNORECASE,
)
#: Names that hold a secret in the query of a URL, such as of a link that is signed.
_IN_QUERIES = (
    "key",
    "sig",
    "signature",
    "x-amz-signature",
    "x-goog-signature",
    "x-amz-security-token",
    "code",
)


def mask_shapes(text: str) -> str:
    """Return a text with a mask for each secret that is known by its shape, or by the name of its
    value.
    """
    masked, _ = _masked(text)
    return masked


def _masked(text: str) -> tuple[str, list[str]]:
    """Return a text with a mask for each secret, and the secrets."""
    secrets: list[str] = []

    def mask_shape(match: re.Match[str]) -> str:
        secrets.append(match[0])
        return MASK

    def mask_header(match: re.Match[str]) -> str:
        name = match["name"] or match["cookie"]
        secrets.append(match[0].removeprefix(name))
        return f"{name}{MASK}"

    def mask_value(match: re.Match[str]) -> str:
        """Mask the value of a name, unless it is no secret or is masked already."""
        value = match["value"].strip("'\"")
        if not _names_secret(match) or not value.strip("*"):
            return match[0]
        secrets.append(value)
        return match[0].removesuffix(match["value"]) + match["value"].replace(value, MASK)

    text = _SHAPES.sub(mask_shape, text)
    text = _HEADER.sub(mask_header, text)
    text = _ASSIGNED.sub(mask_value, text)
    return text, secrets


def _names_secret(match: re.Match[str]) -> bool:
    """Return whether an assigned value is a secret: a password of any length, or the value of
    another telling name that is as long as a key and no number.
    """
    name = match["name"].lower()
    value = match["value"].strip("'\"")
    if any(word in name for word in ("password", "passwd", "passphrase", "pwd", "secret")):
        return True
    if match["sign"] == ":" and not match["quote"]:  # in a sentence
        return False
    if len(value) < MIN_LENGTH or value.isdecimal() or value[0] in "<[{(":  # as <|endoftext|>
        return False
    if match["url"] is not None and name in _IN_QUERIES:
        return True
    return name != "key" and is_secret(match["name"])


def is_secret(name: str) -> bool:
    """Return whether a variable or parameter of this name holds a secret, such as `HF_TOKEN`,
    `x-api-key` and `accessToken`.
    """
    letters = re.sub(r"[^a-z]", "", name.lower())
    words = _HUMP.sub("_", name)
    return bool(_SECRET.search(letters) or _SHORT.search(words))


def mask_secrets(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with masks for secrets, by name and by shape, also inside tables and lists.

    A number is no secret, and neither are true and false.
    """
    masked: dict[str, Any] = {}
    for name, value in params.items():
        if is_secret(name) and not isinstance(value, int | float):
            masked[name] = MASK
        else:
            masked[name] = _mask_inside(value)
    return masked


def _mask_inside(value: Any) -> Any:
    """Return a text, a table or a list with masks for secrets; any other value as it is."""
    if isinstance(value, str):
        return mask_shapes(value)
    if isinstance(value, dict):
        return mask_secrets(value)
    if isinstance(value, list):
        return [_mask_inside(item) for item in value]
    return value


def server_key(params: Mapping[str, Any]) -> dict[str, str]:
    """Return, as `key`, the key of a server from the variable that `api_key_env` names; an empty
    text without one.
    """
    return {"key": os.environ.get(str(params.get("api_key_env")), "")}


class Redactor:
    """Replaces secrets in texts: those of an environment and of parameters, which are known by
    their names, and those that are known by their shape.
    """

    def __init__(self, *sources: Mapping[str, Any]) -> None:
        """Take the secrets of some environments and parameters, each line of one by itself; shorter
        ones than `MIN_LENGTH` are left out.
        """
        spellings: set[str] = set()
        for value in _secrets(list(sources)):
            for line in value.splitlines():
                if len(line) >= MIN_LENGTH:
                    spellings.update(_spellings(line))
        self._secrets = sorted(spellings, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return a text with a mask for each secret."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return mask_shapes(text)


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and as Python, JSON, URLs and HTML write it."""
    escaped = {
        secret,
        repr(secret)[1:-1],
        json.dumps(secret, ensure_ascii=True)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        html.escape(secret),
        html.escape(secret, quote=False),
    }
    yield from escaped
    yield from (form.replace("/", "\\/") for form in escaped)  # as PHP writes JSON
    data = secret.encode("utf-8", "backslashreplace")
    for form in (quote(data), quote(data, safe=""), quote_plus(data), quote(data, safe="/:@+=~")):
        yield form
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), form)


def _secrets(value: Any, is_named: bool = False) -> Iterator[str]:
    """Yield the secrets inside a value: everything below a name that holds a secret, or if the
    value `is_named` so; else what is known by its shape.
    """
    if isinstance(value, list):
        for item in value:
            yield from _secrets(item, is_named)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets(item, is_named or is_secret(name))
    elif is_named:
        yield str(value)
    elif isinstance(value, str):
        _, secrets = _masked(value)
        yield from secrets
