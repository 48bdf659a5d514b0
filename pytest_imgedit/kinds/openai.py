"""The judge `openai` and the editor `openai-images`: any server with OpenAI's API, such as vLLM or
SGLang.
"""

import asyncio
import base64
import binascii
import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from PIL import Image
from pydantic import Field

from pytest_imgedit.core import errors, images, redaction, requests, sanitize
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.base import (
    Composition,
    Model,
    Parameters,
    Requirements,
    Site,
    Where,
    indifferent,
)
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


class OpenAIParameters(ServerParameters):
    """What the judge `openai` takes."""

    max_new_tokens: int = Field(
        default=128, ge=1, description="length of a reply; longer if the protocol needs it"
    )
    max_pixels: int = Field(
        default=1_048_576,
        ge=1024,
        description="larger images are made smaller, keeping their shape, before they are sent "
        "(as PNG), unless the protocol says how they are sent",
    )
    temperature: Literal["default"] | Annotated[float, Field(ge=0, le=2)] = Field(
        default=0.0, description='`"default"` sends none, for models that refuse it'
    )
    token_limit: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens",
        description="what the request calls the length of a reply; reasoning models take "
        '`"max_completion_tokens"`',
    )
    price_in: float = indifferent(
        0.0, ge=0, allow_inf_nan=False, description="price of a million tokens in the prompt"
    )
    price_out: float = indifferent(
        0.0, ge=0, allow_inf_nan=False, description="price of a million tokens of replies"
    )


class OpenAIImagesParameters(ServerParameters):
    """What the editor `openai-images` takes."""

    size: str | None = Field(default=None, description="goes into the request")
    response_format: Literal["b64_json"] | None = Field(
        default=None, description='servers that answer with URLs need `"b64_json"`'
    )
    send_seed: bool = Field(default=False, description="the pair's seed goes into the request")


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


class OpenAIJudge:
    """Asks `URL#MODEL`, up to `concurrency` questions at a time; `params` are those of
    `OpenAIParameters`.
    """

    def __init__(self, endpoint: str, *, device: str, **params: Any) -> None:
        options = OpenAIParameters.parse(params)
        self.server = Server(*parse_endpoint("openai", endpoint), options)
        self.server.check()
        from openai import AsyncOpenAI

        self.max_pixels = options.max_pixels
        self.max_new_tokens, self.token_limit = options.max_new_tokens, options.token_limit
        #: Twice as many as at a time, so that a slow answer holds up few others.
        self.batch_size = 2 * options.concurrency
        self.request: JsonObject = {
            "model": self.server.model,
            "extra_body": options.extra or None,
        }
        if options.temperature != "default":
            self.request["temperature"] = options.temperature
        self._runner = asyncio.Runner()  # one loop for good, to which the connections belong
        self._free = asyncio.Semaphore(options.concurrency)
        self._client = AsyncOpenAI(**self.server.client)

    def preprocess(self, question: requests.Question) -> list[JsonObject]:
        """Turn a question into the messages of a chat, images in data URLs; a system prompt is
        left out if it is empty.
        """
        content: list[JsonObject] = []
        preparation = question.preparation
        for kind, value in question.parts:
            if kind == "image":
                image = question.images[value]
                if not preparation.codec:
                    image = fit(image, self.max_pixels)
                url = {"url": data_url(image, preparation)}
                if preparation.detail:
                    url["detail"] = preparation.detail
                content.append({"type": "image_url", "image_url": url})
            else:
                content.append({"type": "text", "text": sanitize.plain(value)})
        messages: list[JsonObject] = [{"role": "user", "content": content}]
        if question.system:
            messages.insert(0, {"role": "system", "content": sanitize.plain(question.system)})
        return messages

    def answer(
        self,
        questions: Sequence[requests.Question],
        prepared: Sequence[list[JsonObject]] | None = None,
    ) -> list[requests.Answer]:
        """Answer questions; one whose request fails for good is answered by its error."""
        chats = prepared or [self.preprocess(question) for question in questions]
        lengths = [max(self.max_new_tokens, question.max_new_tokens) for question in questions]
        return self._runner.run(self._all(chats, lengths))

    async def _all(
        self, chats: Sequence[list[JsonObject]], lengths: Sequence[int]
    ) -> list[requests.Answer]:
        return await asyncio.gather(*map(self._ask, chats, lengths))

    async def _ask(self, messages: Any, length: int) -> requests.Answer:
        request = {**self.request, self.token_limit: length}
        async with self._free:
            try:
                return read_completion(
                    await self._client.chat.completions.create(messages=messages, **request)
                )
            except Exception as error:  # of this question alone
                return requests.Answer(error=self.server.describe(error), refused=is_refusal(error))


def read_completion(completion: Any) -> requests.Answer:
    """Make an answer of a chat completion; raises whatever reading one that lacks its fields
    raises.
    """
    usage = getattr(completion, "usage", None)
    counts = (getattr(usage, "prompt_tokens", 0), getattr(usage, "completion_tokens", 0))
    tokens_in, tokens_out = (  # a server that claims more than 2**53 tokens is not believed
        count if type(count) is int and 0 <= count < 2**53 else 0 for count in counts
    )
    answer = partial(
        requests.Answer, tokens_in=tokens_in, tokens_out=tokens_out, model=_model_of(completion)
    )
    choice = completion.choices[0]
    content, cut = choice.message.content, choice.finish_reason == "length"
    refusal = getattr(choice.message, "refusal", None)
    if refusal or choice.finish_reason == "content_filter":
        reason = f"the model refuses to answer: {refusal or 'content filter'}"
        return answer(error=reason, refused=True)
    if not (isinstance(content, str) or (cut and content is None)):  # it may have thought only
        return answer(error=f"an answer without text (finish_reason {choice.finish_reason!r})")
    return answer((content or "").strip(), cut=cut)


def _model_of(completion: Any) -> str:
    """Return the model that a server says has answered, with its fingerprint if it names one."""
    names = (getattr(completion, name, None) for name in ("model", "system_fingerprint"))
    return sanitize.shorten(" ".join(name for name in names if isinstance(name, str)), 200)


def is_refusal(error: Exception) -> bool:
    """Tell whether a request failed since a content filter refused it."""
    body = getattr(error, "body", None)
    code = str(body.get("code") if isinstance(body, dict) else "")
    return any(name in code for name in ("content_filter", "content_policy", "moderation"))


def fit(image: Image.Image, max_pixels: int) -> Image.Image:
    """Make an image smaller, keeping its shape, until it has at most so many pixels."""
    width, height = image.size
    if width * height <= max_pixels:
        return image
    scale = math.sqrt(max_pixels / (width * height))
    return image.resize(
        (max(1, math.floor(width * scale)), max(1, math.floor(height * scale))),
        Image.Resampling.LANCZOS,
    )


def data_url(image: Image.Image, preparation: requests.Preparation) -> str:
    """Return an image as a `data:` URL of its PNG or JPEG."""
    if preparation.codec == "jpeg":
        codec, data = "jpeg", images.encode_jpeg(image, preparation.quality)
    else:
        codec, data = "png", images.encode_png(image)
    return f"data:image/{codec};base64,{base64.b64encode(data).decode('ascii')}"


class OpenAIImagesEditor:
    """Asks `URL#MODEL` for one image a request, one request at a time; the harness runs
    `concurrency` such workers.

    `params` are those of `OpenAIImagesParameters`.
    """

    def __init__(self, endpoint: str, *, device: str, **params: Any) -> None:
        self.options = OpenAIImagesParameters.parse(params)
        self.server = Server(*parse_endpoint("openai-images", endpoint), self.options)
        self.server.check()
        from openai import OpenAI

        fields = self.options.model_dump(include={"size", "response_format"})
        self.request: JsonObject = {name: value for name, value in fields.items() if value}
        self._client = OpenAI(**self.server.client)

    def edit(self, request: requests.EditRequest) -> Image.Image:
        """Edit one image; raises `OutputError` for an answer without one, `RuntimeError` for a
        failed request.
        """
        import openai

        seed = {"seed": request.seed} if self.options.send_seed else {}
        try:
            answer = self._client.images.edit(
                model=self.server.model,
                image=_named(request),
                prompt=request.instruction,
                extra_body={**self.options.extra, **seed} or None,
                **self.request,
            )
        except openai.OpenAIError as error:
            kind = errors.Refused if is_refusal(error) else RuntimeError
            raise kind(self.server.describe(error)) from None
        first = answer.data[0] if answer.data else None
        if first is None or first.b64_json is None:
            if getattr(first, "url", None) is None:
                raise errors.OutputError("the server sent nothing, expected an image")
            raise errors.OutputError(
                "the server sent a URL, expected an image; "
                'editor.response_format="b64_json" may help'
            )
        try:
            return images.decode(base64.b64decode(first.b64_json, validate=True))
        except (binascii.Error, errors.ImageError) as error:
            raise errors.OutputError(f"the server sent no image: {error}") from None


def _named(request: requests.EditRequest) -> Any:
    """Return the source images as files: one, or a list of several."""
    files = [
        (
            f"source-{number}.png" if number > 1 else "source.png",
            images.encode_png(image),
            "image/png",
        )
        for number, image in enumerate((request.source, *request.further), 1)
    ]
    return files if request.further else files[0]


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


class OpenAI(ServedModel):
    """A server with OpenAI's chat completions: vLLM, SGLang, `transformers serve`, commercial ones.
    It needs no GPU here, so scoring overlaps editing.
    """

    role = "judge"
    name = "openai"
    worker = OpenAIJudge
    Params = OpenAIParameters
    options: OpenAIParameters

    @property
    def requirements(self) -> Requirements:
        return Requirements(self.libraries, prices=(self.options.price_in, self.options.price_out))


class OpenAIImages(ServedModel):
    """A server with OpenAI's images/edits."""

    role = "editor"
    name = "openai-images"
    takes_further = True
    worker = OpenAIImagesEditor
    Params = OpenAIImagesParameters

    @property
    def requirements(self) -> Requirements:
        return Requirements(self.libraries, concurrency=self.options.concurrency)
