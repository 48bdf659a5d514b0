"""Servers of models: their URLs, parameters and clients, and what every kind behind one shares."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field

from pytest_imgedit.core import errors, redaction, sanitize
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.base import Composition, Model, Parameters, Site, Where, indifferent
from pytest_imgedit.kinds.checkpoint_files import Digests


def parse_endpoint(name: str, argument: str) -> tuple[str, str]:
    """Return the base URL of an API and the name of a model behind it, as `URL#MODEL` names them.

    Raises `UsageError` for anything else, also for a key or password in the URL.
    """
    expected = f"expected {name}:URL#MODEL, such as {name}:http://localhost:8000/v1#my-model"
    url, _, model = argument.partition("#")
    if "@" in url or "?" in url:
        raise errors.UsageError(f"{name}:…#{model}: a URL with credentials or a query, {expected}")
    if not is_url(url):
        raise errors.UsageError(f"{name}:{argument}: no http or https URL, {expected}")
    if not model.strip():
        raise errors.UsageError(f"{name}:{argument}: no model, {expected}")
    return url.rstrip("/"), model.strip()


def is_url(text: str) -> bool:
    """Tell whether a text is the URL of a server, by http or https."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class ServerParameters(Parameters):
    """What every editor and judge behind a server takes."""

    api_key_env: str = indifferent(
        "OPENAI_API_KEY",
        description="the environment variable with the key; a key in a config file is refused",
    )
    concurrency: int = indifferent(
        8, ge=1, le=256, description="requests at a time: of one judge process, or editor processes"
    )
    timeout: float = indifferent(60.0, gt=0, allow_inf_nan=False, description="seconds for one try")
    retries: int = indifferent(
        5,
        ge=0,
        description="further tries after 408, 409, 429, 5xx, a broken connection or a timeout",
    )
    extra: JsonObject = Field(
        default_factory=dict,
        description="goes into the body of each request, such as `{top_k = 1}`",
    )


@dataclass(frozen=True)
class Server:
    """A server whose API has the base URL `url`, and the name of a `model` behind it.

    The key is what the environment variable `api_key_env` holds. Requests that fail with 408, 409,
    429 or 5xx, without connection or after `timeout` seconds are sent again up to `retries` times,
    after waits that double from half a second to eight, or as long as the server asks for.
    """

    url: str
    model: str
    options: ServerParameters

    @property
    def client(self) -> JsonObject:
        """The arguments of a client of the package `openai`."""
        return {
            "base_url": self.url,
            # local servers ask for no key, and the client wants some text
            "api_key": os.environ.get(self.options.api_key_env) or "none",
            "timeout": self.options.timeout,
            "max_retries": self.options.retries,
        }

    def probe(self, client: Any) -> Any:
        """Ask the server for its models, through a client of the package `openai`."""
        return client.models.list()

    def check(self) -> None:
        """Probe the server; raises `SetupError` if it cannot be reached or refuses the key, or if
        the package `openai` is not installed. A server that answers the probe with another error is
        taken as it is.
        """
        try:
            import openai
        except ImportError:
            raise errors.SetupError(
                "the package openai is not installed: pip install openai"
            ) from None
        url, timeout = self.url, min(self.options.timeout, 20)
        with openai.OpenAI(**{**self.client, "timeout": timeout, "max_retries": 2}) as client:
            try:
                _within(timeout, partial(self.probe, client))
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                name, status = self.options.api_key_env, error.status_code
                if os.environ.get(name):
                    raise errors.SetupError(f"{url} refuses the key in {name} ({status})") from None
                raise errors.SetupError(
                    f"{url} wants a key ({status}), expected one in {name}"
                ) from None
            # a `TimeoutError`: it answers so slowly that no single read runs out of time
            except (TimeoutError, openai.APITimeoutError):
                raise errors.SetupError(f"{url} does not answer within {timeout:g} s") from None
            except openai.APIConnectionError as error:
                raise errors.SetupError(
                    f"{url} cannot be reached: {sanitize.one_line(error.__cause__ or error)}"
                ) from None
            except Exception:
                return  # it answers, if with nothing that was asked for

    def describe(self, error: Exception) -> str:
        """Say in one line why a request brought nothing, with how often it was tried."""
        import openai

        retries = self.options.retries
        tried = f", tried {retries + 1} times" if retries else ""
        if isinstance(error, openai.APITimeoutError):
            return f"no answer within {self.options.timeout:g} s{tried}"
        if isinstance(error, openai.APIConnectionError):
            cause = sanitize.one_line(error.__cause__ or error)
            return f"the server cannot be reached: {cause}{tried}"
        if isinstance(error, openai.APIStatusError):
            if error.status_code not in (408, 409, 429) and error.status_code < 500:
                tried = ""
            body = error.body if isinstance(error.body, dict) else {}
            message = str(body.get("message") or body.get("detail") or error.message)
            return f"the server answered {error.status_code}{tried}: {' '.join(message.split())}"
        return (
            f"the server's answer is not what it should be: {type(error).__name__}: "
            f"{sanitize.one_line(error)}"
        )


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return what a call returns, or raise what it raises; raises `TimeoutError` if that takes
    longer.

    It is made in a thread that does not keep the process alive.
    """
    outcome: Future[Any] = Future()

    def attempt() -> None:
        try:
            outcome.set_result(call())
        except Exception as error:
            outcome.set_exception(error)

    threading.Thread(target=attempt, daemon=True).start()
    return outcome.result(seconds)


class ServedModel(Model):
    """A model that a server computes, by default one with OpenAI's API."""

    takes = "URL#MODEL"
    is_served = True
    Params: ClassVar[type[ServerParameters]] = ServerParameters
    options: ServerParameters

    def server(self) -> Server:
        """Return its server, without asking it; raises `UsageError` for a wrong endpoint."""
        return Server(*parse_endpoint(self.name, self.argument or ""), self.options)

    def check(self, site: Site) -> None:
        if secret := next((name for name in self.params if redaction.is_secret(name)), None):
            variable = self.Params.model_fields["api_key_env"].default
            raise errors.SettingError(
                secret,
                "a key comes from the environment, from the variable that api_key_env names "
                f"({variable})",
            )
        super().check(site)
        self.server()

    def reach(self) -> None:
        try:
            self.server().check()
        except errors.SetupError as error:
            raise errors.UsageError(str(error)) from None

    def compose(self, where: Where, digests: Digests) -> Composition:
        server = self.server()
        return Composition({"model": server.model}, {"server": server.url})
