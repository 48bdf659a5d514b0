"""Stubs of hosted servers, OpenAI, DashScope and Azure, which answer and refuse as those do.

The bodies are those that the providers document or that users quote in public issues.
"""

from __future__ import annotations

import base64
import threading
from typing import Any

from provider_servers import GOOD, Provider, Reply, Request


class OpenAI(Provider):
    """OpenAI: with `reasoning`, models that know neither `max_tokens` nor another temperature than
    the default. After `quota` answers there is no money left.
    """

    def __init__(
        self,
        *models: str,
        key: str = "sk-right",
        reasoning: bool = False,
        quota: int | None = None,
        reply: str = GOOD,
    ) -> None:
        super().__init__(*models, key=key, reply=reply)
        self.reasoning = reasoning
        self.quota = quota
        self._lock = threading.Lock()

    def refusal(self, body: dict[str, Any]) -> Reply | None:
        if body["model"] not in self.models:
            message = f"The model `{body['model']}` does not exist or you do not have access to it."
            return self.error(404, message, code="model_not_found")
        if self.reasoning:
            refused = self.refused_parameter(body)
            if refused is not None:
                return refused
        with self._lock:
            if self.quota is not None:
                if self.quota == 0:
                    return self.error_of_quota()
                self.quota -= 1
        return None

    def refused_parameter(self, body: dict[str, Any]) -> Reply | None:
        """Return the refusal of the first parameter that a reasoning model does not know."""
        if "max_tokens" in body:
            message = (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead."
            )
            return self.error(400, message, code="unsupported_parameter", param="max_tokens")
        temperature = body.get("temperature", 1)
        if temperature != 1:
            message = (
                f"Unsupported value: 'temperature' does not support {temperature} with this model. "
                "Only the default (1) value is supported."
            )
            return self.error(400, message, code="unsupported_value", param="temperature")
        return None

    def error_of_quota(self) -> Reply:
        message = (
            "You exceeded your current quota, please check your plan and billing details. For more "
            "information on this error, read the docs: "
            "https://platform.openai.com/docs/guides/error-codes/api-errors."
        )
        return self.error(429, message, code="insufficient_quota", kind="insufficient_quota")

    def error(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str = "invalid_request_error",
    ) -> Reply:
        return status, {"error": {"message": message, "type": kind, "param": param, "code": code}}

    def refuse_key(self, request: Request) -> Reply:
        key = self.key_of(request)
        if not key:
            message = (
                "You didn't provide an API key. You need to provide your API key in an "
                "Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
            )
            return self.error(401, message)
        message = (
            f"Incorrect API key provided: {key}. You can find your API key at "
            "https://platform.openai.com/account/api-keys."
        )
        return self.error(401, message, code="invalid_api_key")

    def refuse_path(self, request: Request) -> Reply:
        return self.error(404, f"Invalid URL ({request.method} {request.path})")


class OpenAIImages(OpenAI):
    """OpenAI's images/edits with gpt-image models, which answer in base64 and refuse the parameter
    `response_format`; every edit is this PNG.
    """

    #: What the form may hold.
    known = frozenset(
        [
            "model",
            "image",
            "image[]",
            "prompt",
            "mask",
            "n",
            "size",
            "quality",
            "background",
            "input_fidelity",
            "output_format",
            "output_compression",
            "moderation",
            "user",
        ]
    )

    def __init__(self, *models: str, png: bytes, key: str = "sk-right", quota: int | None = None):
        super().__init__(*models, key=key, quota=quota)
        self.png = png

    def answer(self, request: Request) -> Reply:
        is_edit = (request.method, request.path) == ("POST", f"{self.base}/images/edits")
        if not is_edit or (self.key and self.key_of(request) != self.key):
            return super().answer(request)
        self.asked.append(request.body)
        return self.refusal(request.body) or self.edit()

    def refusal(self, body: dict[str, Any]) -> Reply | None:
        unknown = next((name for name in body if name not in self.known), None)
        if unknown is not None:
            message = f"Unknown parameter: '{unknown}'."
            return self.error(400, message, code="unknown_parameter", param=unknown)
        model = body["model"].decode()
        if model not in self.models:
            message = f"The model '{model}' does not exist."
            kind = "image_generation_user_error"
            return self.error(400, message, code="invalid_value", param="model", kind=kind)
        return super().refusal({**body, "model": model})

    def edit(self) -> Reply:
        data = [{"b64_json": base64.b64encode(self.png).decode("ascii")}]
        tokens = {"input_tokens": 100, "output_tokens": 1000, "total_tokens": 1100}
        return 200, {"created": 1, "data": data, "usage": tokens}


class DashScope(Provider):
    """Alibaba's DashScope in its mode compatible with OpenAI, which lists no models; with
    `in_arrears` the account owes money.
    """

    base = "/compatible-mode/v1"

    def __init__(
        self, *models: str, key: str = "sk-right", in_arrears: bool = False, reply: str = GOOD
    ) -> None:
        super().__init__(*models, key=key, reply=reply)
        self.in_arrears = in_arrears

    def list_models(self) -> Reply:
        return 404, {"error": {"message": "Not Found", "type": "not_found", "code": "not_found"}}

    def refusal(self, body: dict[str, Any]) -> Reply | None:
        if self.in_arrears:
            message = "Access denied, please make sure your account is in good standing."
            return self.error(400, message, code="Arrearage", kind="Arrearage")
        if body["model"] not in self.models:
            message = f"The model `{body['model']}` does not exist or you do not have access to it."
            return self.error(404, message, code="model_not_found")
        return None

    def error(
        self, status: int, message: str, *, code: str, kind: str = "invalid_request_error"
    ) -> Reply:
        error = {"message": message, "type": kind, "param": None, "code": code}
        number = "f9fdb027-0000-9e05-8366-ce479a878825"
        return status, {"error": error, "id": f"chatcmpl-{number}", "request_id": number}

    def refuse_key(self, request: Request) -> Reply:
        message = (
            "Incorrect API key provided. For details, see: "
            "https://help.aliyun.com/zh/model-studio/error-code#apikey-error"
        )
        return self.error(401, message, code="invalid_api_key")


class Azure(Provider):
    """Azure OpenAI at its classic address, with a version in the query and the key in `api-key`.

    A question goes to a deployment, which the path names. The list of models names the models of
    the resource, and no deployment.
    """

    base = "/openai"

    def __init__(self, *deployments: str, key: str = "right", reply: str = GOOD) -> None:
        super().__init__("gpt-4.1-2025-04-14", key=key, reply=reply)
        self.deployments = deployments

    def answer(self, request: Request) -> Reply:
        if not request.query.get("api-version"):
            return self.refuse_path(request)
        if request.method == "GET" or self.key_of(request) != self.key:
            return super().answer(request)
        self.asked.append(request.body)
        parts = request.path.split("/")
        if parts[1:3] != ["openai", "deployments"] or parts[4:] != ["chat", "completions"]:
            return self.refuse_path(request)
        if parts[3] not in self.deployments:
            message = (
                "The API deployment for this resource does not exist. If you created the "
                "deployment within the last 5 minutes, please wait a moment and try again."
            )
            return 404, {"error": {"code": "DeploymentNotFound", "message": message}}
        return self.complete({**request.body, "model": self.models[0]})

    def key_of(self, request: Request) -> str:
        return request.headers.get("api-key", "")

    def refuse_key(self, request: Request) -> Reply:
        message = (
            "Access denied due to invalid subscription key or wrong API endpoint. Make sure to "
            "provide a valid key for an active subscription and use a correct regional API "
            "endpoint for your resource."
        )
        return 401, {"error": {"code": "401", "message": message}}

    def refuse_path(self, request: Request) -> Reply:
        return 404, {"error": {"code": "404", "message": "Resource not found"}}
