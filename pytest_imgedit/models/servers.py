"""OpenAI-compatible servers: how a spec names one, its parameters, its client, and what its errors mean."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from pytest_imgedit.core.errors import SetupError, UsageError
from pytest_imgedit.core.patience import within
from pytest_imgedit.core.sanitize import one_line
from pytest_imgedit.core.strict_json import JsonObject

API_KEY_ENV = "OPENAI_API_KEY"
_NO_KEY = "none"  # servers of one's own ask for none, and the client wants some text


@dataclass(frozen=True)
class Endpoint:
    """The base URL of an API, such as `http://localhost:8000/v1`, and the name of a model behind it."""

    url: str
    model: str


def parse_endpoint(name: str, argument: str) -> Endpoint:
    """Read `URL#MODEL`; raises `UsageError` for anything else, also for a key or password in the URL."""
    expected = f"expected {name}:URL#MODEL, such as {name}:http://localhost:8000/v1#my-model"
    url, hash_sign, model = argument.partition("#")
    if "@" in url or "?" in url:
        raise UsageError(f"{name}:…#{model}: a URL with credentials or a query, {expected}")
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound or not hash_sign or not model.strip():
        raise UsageError(f"{name}:{argument}: {'no model' if sound else 'no http or https URL'}, {expected}")
    return Endpoint(url.rstrip("/"), model.strip())


@dataclass(frozen=True)
class Asking:
    """How an endpoint is asked.

    The key is what the environment variable `api_key_env` holds. Requests that fail with 408, 409, 429 or 5xx, without
    connection or after `timeout` seconds are sent again up to `retries` times, after waits that double from half a
    second to eight, or as long as the server asks for.
    """

    endpoint: Endpoint
    api_key_env: str
    timeout: float
    retries: int

    @property
    def client(self) -> JsonObject:
        """The arguments of a client of the package `openai`."""
        key = os.environ.get(self.api_key_env) or _NO_KEY
        return {"base_url": self.endpoint.url, "api_key": key, "timeout": self.timeout, "max_retries": self.retries}

    def check(self) -> None:
        """Ask the server for its models; raises `SetupError` if it cannot be reached or refuses the key, or if the
        package `openai` is not installed. A server that does not list models is taken as it is.
        """
        try:
            import openai
        except ImportError:
            raise SetupError("the package openai is not installed: pip install openai") from None
        url, timeout = self.endpoint.url, min(self.timeout, 20)
        with openai.OpenAI(**{**self.client, "timeout": timeout, "max_retries": 2}) as client:
            try:
                within(timeout, client.models.list)
            except TimeoutError:  # it answers so slowly that no single read runs out of time
                raise SetupError(f"{url} does not answer within {timeout:g} s") from None
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                name, status = self.api_key_env, error.status_code
                if os.environ.get(name):
                    raise SetupError(f"{url} refuses the key in {name} ({status})") from None
                raise SetupError(f"{url} wants a key ({status}), expected one in {name}") from None
            except openai.APITimeoutError:
                raise SetupError(f"{url} does not answer within {timeout:g} s") from None
            except openai.APIConnectionError as error:
                raise SetupError(f"{url} cannot be reached: {_cause(error)}") from None
            except Exception:
                return  # it answers, if with nothing that lists models

    def describe(self, error: Exception) -> str:
        """Say in one line why a request brought nothing, with how often it was tried."""
        import openai

        tried = f", tried {self.retries + 1} times" if self.retries else ""
        if isinstance(error, openai.APITimeoutError):
            return f"no answer within {self.timeout:g} s{tried}"
        if isinstance(error, openai.APIConnectionError):
            return f"the server cannot be reached: {_cause(error)}{tried}"
        if isinstance(error, openai.APIStatusError):
            again = tried if error.status_code in (408, 409, 429) or error.status_code >= 500 else ""
            body = error.body if isinstance(error.body, dict) else {}
            message = " ".join(str(body.get("message") or body.get("detail") or error.message).split())
            return f"the server answered {error.status_code}{again}: {message}"
        return f"the server's answer is not what it should be: {type(error).__name__}: {one_line(error)}"


def _cause(error: Exception) -> str:
    return one_line(error.__cause__ or error)
