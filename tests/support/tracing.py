"""The tracer provider of the tests' process: OpenTelemetry takes one for good, so that all tests add to the same."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider


def tracer_provider() -> TracerProvider:
    """The one that was set first; a new one where none was."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    return provider
