"""What the sandbox says over HTTP: an answer, or a refusal in Stripe's form.

Owns the two values and the wording of common refusals. Never touches a socket or the books.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a JSON body and further headers."""

    status: int
    body: dict[str, Any]
    headers: tuple[tuple[str, str], ...] = ()
    replayed: bool = False


class ApiError(Exception):
    """An error answer. `stored` says whether a key keeps it: only what the endpoint itself found out is kept."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        stored: bool = False,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        fields = {"type": kind, "code": code, "message": message, "param": param}
        self.answer = Answer(status, {"error": {k: v for k, v in fields.items() if v is not None}}, headers)
        self.stored = stored


def missing_param(name: str) -> ApiError:
    """A required parameter was left out."""
    return ApiError(400, f"Missing required param: {name}.", code="parameter_missing", param=name)


def no_such(noun: str, identifier: str, *, param: str) -> ApiError:
    """The object does not exist."""
    return ApiError(404, f"No such {noun}: '{identifier}'", code="resource_missing", param=param, stored=True)


def server_error(status: int = 500) -> ApiError:
    """Something broke at the provider; the text says nothing about what was done."""
    return ApiError(status, "An unknown error occurred", kind="api_error", stored=True)
