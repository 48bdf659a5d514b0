"""The judge `openai` and the editor `openai-images`, which a server computes: their parameters."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from pytest_imgedit.core.errors import SettingError, SetupError, UsageError
from pytest_imgedit.core.redaction import is_secret
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.models.fingerprints import Digests
from pytest_imgedit.models.kinds import Model
from pytest_imgedit.models.parameters import Parameters, indifferent
from pytest_imgedit.models.places import Site, Where
from pytest_imgedit.models.servers import API_KEY_ENV, Asking, Endpoint, parse_endpoint


class ServerParameters(Parameters):
    """What every editor and judge behind a server takes."""

    api_key_env: str = indifferent(
        API_KEY_ENV, description="the environment variable with the key; a key in a config file is refused"
    )
    concurrency: int = indifferent(
        8, ge=1, le=256, description="requests at a time: of one judge process, or editor processes"
    )
    timeout: float = indifferent(60.0, gt=0, allow_inf_nan=False, description="seconds for one try")
    retries: int = indifferent(
        5, ge=0, description="further tries after 408, 409, 429, 5xx, a broken connection or a timeout"
    )
    extra: JsonObject = Field(
        default_factory=dict, description="goes into the body of each request, such as `{top_k = 1}`"
    )

    def asking(self, endpoint: Endpoint) -> Asking:
        """Say how an endpoint is asked."""
        return Asking(endpoint, self.api_key_env, self.timeout, self.retries)


class OpenAIParameters(ServerParameters):
    """What the judge `openai` takes."""

    max_new_tokens: int = Field(default=128, ge=1, description="length of a reply")
    max_pixels: int = Field(
        default=1_048_576,
        ge=1024,
        description="larger images are made smaller, keeping their shape, before they are sent (as PNG)",
    )
    temperature: Literal["default"] | Annotated[float, Field(ge=0, le=2)] = Field(
        default=0.0, description='`"default"` sends none, for models that refuse it'
    )
    token_limit: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens",
        description='what the request calls the length of a reply; reasoning models take `"max_completion_tokens"`',
    )
    price_in: float = indifferent(0.0, ge=0, allow_inf_nan=False, description="price of a million tokens in the prompt")
    price_out: float = indifferent(0.0, ge=0, allow_inf_nan=False, description="price of a million tokens of replies")


class OpenAIImagesParameters(ServerParameters):
    """What the editor `openai-images` takes."""

    size: str | None = Field(default=None, description="goes into the request")
    response_format: Literal["b64_json"] | None = Field(
        default=None, description='servers that answer with URLs need `"b64_json"`'
    )
    send_seed: bool = Field(default=False, description="the pair's seed goes into the request")


class ServedModel(Model):
    """A model that an OpenAI-compatible server computes."""

    takes = "URL#MODEL"
    is_served = True
    Params = ServerParameters

    @cached_property
    def options(self) -> ServerParameters:
        """The checked parameters."""
        return type(self).Params.check(dict(self.params))

    def check(self, site: Site) -> None:
        parse_endpoint(self.name, self.argument or "")
        if secret := next((name for name in self.params if is_secret(name)), None):
            expected = f"from the environment, from the variable that api_key_env names ({API_KEY_ENV})"
            raise SettingError(secret, f"a key comes {expected}")
        super().check(site)

    def reach(self) -> None:
        try:
            self.options.asking(parse_endpoint(self.name, self.argument or "")).check()
        except SetupError as error:
            raise UsageError(str(error)) from None

    def made_of(self, digests: Digests) -> JsonObject:
        return {"model": parse_endpoint(self.name, self.argument or "").model}

    def computed_by(self, where: Where, digests: Digests) -> JsonObject:
        return {"server": parse_endpoint(self.name, self.argument or "").url}


class OpenAI(ServedModel):
    """A judge behind a server with chat completions."""

    role = "judge"
    name = "openai"
    loads = "pytest_imgedit.judges.openai:OpenAIJudge"
    Params = OpenAIParameters

    @property
    def prices(self) -> tuple[float, float]:
        options = OpenAIParameters.check(dict(self.params))
        return options.price_in, options.price_out


class OpenAIImages(ServedModel):
    """An editor behind a server with images/edits."""

    role = "editor"
    name = "openai-images"
    loads = "pytest_imgedit.editors.openai_images:OpenAIImagesEditor"
    Params = OpenAIImagesParameters

    @property
    def concurrency(self) -> int:
        return self.options.concurrency
