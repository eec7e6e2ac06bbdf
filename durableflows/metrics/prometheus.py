"""The figures in the text format of Prometheus, by its own library. Without it, nothing here is ever imported."""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

from durableflows.metrics.values import Sample, by_kind


def is_installed() -> bool:
    """Is prometheus-client there?"""
    return find_spec("prometheus_client") is not None


def exposed(samples: Iterable[Sample]) -> tuple[bytes, str]:
    """The page that Prometheus scrapes, and its content type. A metric without samples is there with its meaning."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(tuple(samples)))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Collected:
    """What the library asks for its figures."""

    def __init__(self, samples: tuple[Sample, ...]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        for kind, samples in by_kind(self._samples).items():
            family = GaugeMetricFamily(kind.name, kind.says, labels=kind.labels)
            for sample in samples:
                family.add_metric(sample.labels, sample.value)
            yield family
