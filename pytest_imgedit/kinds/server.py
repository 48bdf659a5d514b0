"""Servers of models: their URLs, parameters and clients, and what all kinds behind one share."""

import os
import re
import threading
import urllib.request
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field

from pytest_imgedit.core import errors, redaction
from pytest_imgedit.core.requests import Answer
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import one_line
from pytest_imgedit.kinds.base import Composition, Model, Parameters, Site, Where, indifferent
from pytest_imgedit.kinds.checkpoint_files import Digests
from pytest_imgedit.kinds.server_error_bodies import failure_in, parse, sentence_of
from pytest_imgedit.kinds.server_final import FinalFailure, final_failure, is_out_of_quota
from pytest_imgedit.kinds.server_refusals import is_refusal

#: The query of Azure's classic address.
AZURE = re.compile(r"\?api-version=([\w.-]{1,40})\Z")
#: The oldest release of the package `openai` whose client sends bytes as they are.
OLDEST_OPENAI = (2, 16)
#: Stands between the URLs of several servers.
BETWEEN_URLS = re.compile(r",\s*(?=https?://)")
#: Under this name a response holds the `Failure` that was found in it.
_FAILURE = "pytest_imgedit_failure"
#: The header by which a response tells the package `openai` whether to retry.
_RETRY = "x-should-retry"
#: The most seconds that reaching a server may take, and the most retries within them.
PROBE_SECONDS = 20
PROBE_RETRIES = 2


def parse_endpoints(name: str, argument: str) -> tuple[list[str], str]:
    """Return the base URLs of the servers of a model, and its name, as `URL,URL#MODEL` names them;
    raise `UsageError` as `parse_endpoint` does, and for a URL that is there twice.
    """
    listed, mark, model = argument.partition("#")
    urls: list[str] = []
    for url in BETWEEN_URLS.split(listed):
        url, model = parse_endpoint(name, f"{url}{mark}{model}")
        if url in urls:
            raise errors.UsageError(f"{name}:{argument}: {url} is named twice")
        urls.append(url)
    return urls, model


def parse_endpoint(name: str, argument: str) -> tuple[str, str]:
    """Return the base URL of an API and the name of a model behind it, as `URL#MODEL` names them.

    Of queries, only the version of Azure's API may follow the URL (`?api-version=2024-10-21`).
    Raises `UsageError` for anything else, also for a key or password in the URL.
    """
    expected = f"expected {name}:URL#MODEL, such as {name}:http://localhost:8000/v1#my-model"
    url, _, model = argument.partition("#")
    if BETWEEN_URLS.search(url):
        raise errors.UsageError(f"{name}:{argument}: several URLs, {expected}")
    if "@" in url or "?" in AZURE.sub("", url):
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
        8,
        ge=1,
        le=256,
        description="requests at a time, to each server",
    )
    timeout: float = indifferent(60.0, gt=0, allow_inf_nan=False, description="seconds per try")
    retries: int = indifferent(
        5,
        ge=0,
        description="retries after 408, 409, 429, 5xx, a broken connection or a timeout; none of "
        "an exhausted quota",
    )
    ask_first: bool = indifferent(
        True,
        description="one real question, or one small edit, before the first edit: what would fail "
        "each time ends the run then",
    )
    extra: JsonObject = Field(
        default_factory=dict,
        description="added to the body of each request, such as `{top_k = 1}`",
    )


@dataclass(frozen=True)
class Server:
    """A server whose API has the base URL `url`, and the name of a `model` behind it.

    The key is what the environment variable `api_key_env` holds. Requests that fail with 408, 409,
    429 or 5xx, without connection or after `timeout` seconds are sent again up to `retries` times,
    after waits that double from half a second to eight, or as long as the server asks for; those
    for which the account has no quota are not.
    """

    url: str
    model: str
    options: ServerParameters
    #: What an answer has: `choices` or `data`; empty for a server with an API of its own.
    field: str = "choices"

    @property
    def client(self) -> JsonObject:
        """The arguments of a client of the package `openai`."""
        url, _, _ = self.url.partition("?")
        return {
            "base_url": url,
            # local servers ask for no key, and the client wants some text
            "api_key": os.environ.get(self.options.api_key_env) or "none",
            "timeout": self.options.timeout,
            "max_retries": self.options.retries,
        }

    def connect(self, **changes: Any) -> Any:
        """Return a client of the package `openai`, an `AzureOpenAI` for Azure's classic address;
        `changes` replace its arguments.

        It treats an error inside an answer with status 200 as a response with the status that the
        error names, and does not retry a request for which the account has no quota left.
        """
        import openai

        def reveal(response: Any) -> None:
            if response.request.method == "POST":
                response.read()
                self._reveal(response)

        http = openai.DefaultHttpxClient(event_hooks={"response": [reveal]})
        return self._make(openai.OpenAI, openai.AzureOpenAI, {"http_client": http, **changes})

    def connect_async(self) -> Any:
        """Return what `connect` does, for use in an event loop."""
        import openai

        async def reveal(response: Any) -> None:
            if response.request.method == "POST":
                await response.aread()
                self._reveal(response)

        http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [reveal]})
        return self._make(openai.AsyncOpenAI, openai.AsyncAzureOpenAI, {"http_client": http})

    def _make(self, plain: Any, azure: Any, changes: JsonObject) -> Any:
        """Return a client: of the class `azure` if the address is that of Azure's API, else of the
        class `plain`. `changes` replace arguments of `client`.
        """
        arguments = {**self.client, **changes}
        version = AZURE.search(self.url)
        if version:
            return azure(api_version=version[1], **arguments)
        return plain(**arguments)

    def _reveal(self, response: Any) -> None:
        """Give a response with status 200 the status that the error in it names; leave one without
        an error, or with an image, as it is. Tell the client of an exhausted quota not to retry.
        """
        if response.headers.get("content-type", "").startswith("image/"):
            return
        text = response.text
        failure = failure_in(text, self.field) if response.status_code == 200 else None
        if failure is not None:
            response.status_code = failure.status
            response.extensions[_FAILURE] = failure
        status = response.status_code
        if status >= 400 and is_out_of_quota(status, parse(text) or text):
            response.headers[_RETRY] = "false"

    def probe(self, client: Any) -> Any:
        """Ask the server for its models, through a client of the package `openai`."""
        return client.models.list()

    def check(self) -> None:
        """Probe the server; raise `SetupError` if it cannot be reached, does not answer in time or
        refuses the key, or if the package `openai` is not installed. Any other error in its answer
        is ignored: it is there.
        """
        try:
            import openai
        except ImportError:
            raise errors.SetupError(
                "the package openai is not installed: pip install openai"
            ) from None
        if _release(openai.__version__) < OLDEST_OPENAI:
            oldest = ".".join(map(str, OLDEST_OPENAI))
            raise errors.SetupError(
                f"the package openai is {openai.__version__}, expected at least {oldest}: "
                "pip install --upgrade openai"
            )
        url = self.url
        timeout = min(self.options.timeout, PROBE_SECONDS)
        with self.connect(timeout=timeout, max_retries=PROBE_RETRIES) as client:
            try:
                within(timeout, partial(self.probe, client))
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                raise errors.SetupError(self.key_problem(error.status_code)) from None
            # a `TimeoutError`: it answers so slowly that no single read runs out of time
            except (TimeoutError, openai.APITimeoutError):
                raise errors.SetupError(f"{url} does not answer within {timeout:g} s") from None
            except openai.APIConnectionError as error:
                cause = one_line(error.__cause__ or error)
                raise errors.SetupError(
                    f"{url} cannot be reached{through_proxy(url)}: {cause}"
                ) from None
            except openai.APIStatusError as error:
                if error.status_code == 407:
                    raise errors.SetupError(
                        f"{url} cannot be reached{through_proxy(url)}: the proxy wants a password"
                    ) from None
            except Exception:
                return  # it answers, if with nothing that was asked for

    def failed(self, error: Exception, sent: Collection[str] = ()) -> Answer:
        """Return the answer that says why a request with the fields `sent` failed."""
        return Answer(
            error=self.describe(error),
            refused=has_refused(error),
            final=self.final(error, sent) is not None,
        )

    def final(self, error: Exception, sent: Collection[str] = ()) -> FinalFailure | None:
        """Return why a request with the fields `sent` failed, if every one like it will."""
        response = getattr(error, "response", None)
        if response is None:
            return None
        text = response.text
        return final_failure(response.status_code, parse(text) or text, sent, self.model)

    def key_problem(self, status: int) -> str:
        """Say that the server refuses the key, or wants one, with this status."""
        name = self.options.api_key_env
        if os.environ.get(name):
            return f"{self.url} refuses the key in {name} ({status})"
        return f"{self.url} wants a key ({status}), expected one in {name}"

    def describe(self, error: Exception, tries: int | None = None) -> str:
        """Return a line that says why a request failed, and how often it was tried if it was sent
        again; without `tries`, that is as often as the client does.
        """
        import openai

        tries = tries or self.options.retries + 1
        tried = f", tried {tries} times" if tries > 1 else ""
        if isinstance(error, openai.APITimeoutError):
            return f"no answer within {self.options.timeout:g} s{tried}"
        if isinstance(error, openai.APIConnectionError):
            cause = one_line(error.__cause__ or error)
            return f"the server cannot be reached{through_proxy(self.url)}: {cause}{tried}"
        if isinstance(error, openai.APIStatusError):
            may_pass = error.status_code in (408, 409, 429) or error.status_code >= 500
            if not may_pass or error.response.headers.get(_RETRY) == "false":
                tried = ""
            failure = error.response.extensions.get(_FAILURE)
            if failure is not None:
                return f"the server answered 200{tried}, {failure.reason}"
            text = error.response.text
            body = parse(text)
            sentence = sentence_of(text if body is None else body)
            way = through_proxy(self.url) if body is None else ""
            return f"the server answered {error.status_code}{way}{tried}: {sentence}"
        return (
            f"the server's answer is not what it should be: {type(error).__name__}: "
            f"{one_line(error)}"
        )


def _release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in version.split(".")[:2])


def has_refused(error: Exception) -> bool:
    """Tell whether a request failed because a content filter refused it."""
    response = getattr(error, "response", None)
    if response is None:
        return False
    return is_refusal(response.status_code, parse(response.text))


def answered(error: Exception) -> tuple[int, str] | None:
    """Return the status of the answer with which a request failed, that of the error inside an
    answer with status 200, and what it says in one line. Return `None` without an answer.
    """
    response = getattr(error, "response", None)
    if response is None:
        return None
    text = response.text
    body = parse(text)
    return response.status_code, sentence_of(text if body is None else body)


def through_proxy(url: str) -> str:
    """Return a phrase that names the proxy through which the environment sends requests to a URL;
    empty without one.
    """
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
        return ""
    address = proxy.rpartition("@")[2]
    return f" through the proxy {address} (NO_PROXY={parts.hostname} goes past it)"


def within(seconds: float | None, call: Callable[[], Any]) -> Any:
    """Return what a call returns, or raise what it raises; raise `TimeoutError` if it takes more
    than these seconds, unless these are `None`.

    The call is made in a thread that does not keep the process alive.
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
        """Return its server, the first one of several, without asking it; raises `UsageError` for a
        wrong endpoint.
        """
        return self.servers()[0]

    def servers(self) -> list[Server]:
        """Return all its servers, as `server` does."""
        url, model = parse_endpoint(self.name, self.argument or "")
        return [Server(url, model, self.options)]

    def check(self, site: Site) -> None:
        """Raise `SettingError` for a key among the parameters and for a wrong parameter, and
        `UsageError` for a wrong endpoint; the server is not asked.
        """
        for name in self.params.keys() - self.Params.model_fields.keys():
            if redaction.is_secret(name):
                variable = self.Params.model_fields["api_key_env"].default
                raise errors.SettingError(
                    name,
                    "a key comes from the environment, from the variable that api_key_env names "
                    f"({variable})",
                )
        super().check(site)
        self.server()

    @property
    def first_requests(self) -> int:
        is_asked = self.options.ask_first and hasattr(self.worker, "send")
        return len(self.servers()) if is_asked else 0

    @property
    def compared_servers(self) -> int:
        return len(self.servers()) - 1

    def by_server(self) -> list[Self]:
        """Return this model as each of its servers has it, in order."""
        servers = self.servers()
        if len(servers) == 1:
            return [self]
        arguments = [f"{server.url}#{server.model}" for server in servers]
        return [
            replace(self, spec=f"{self.name}:{argument}", argument=argument)
            for argument in arguments
        ]

    def reach(self) -> None:
        try:
            self.server().check()
        except errors.SetupError as error:
            raise errors.UsageError(str(error)) from None

    def compose(self, where: Where, digests: Digests) -> Composition:
        server = self.server()
        return Composition({"model": server.model}, {"server": server.url})
