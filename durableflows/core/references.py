"""What a state holds in the place of a large value or of a secret: references, small and harmless.

Owns the two values. Put into states and results by users' steps; resolved by the run's context inside a step alone.
"""

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

SECRET_NAME = re.compile(r"[A-Za-z0-9_./-]{1,200}")


class ArtifactRef(BaseModel):
    """A value kept in the project's storage. `run.read_artifact(ref)` gives the bytes, if they still have this hash."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=200)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, Field(ge=0)]
    content_type: Annotated[str, Field(max_length=100)] = "application/octet-stream"


class SecretRef(BaseModel):
    """The name of a secret. `run.secret(ref)` asks the project's resolver for its value, in the step that needs it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: Annotated[str, Field(pattern=rf"^{SECRET_NAME.pattern}$")]
