"""What monitors read, as verbs and as a page: figures and their meaning, health and its limits. Reads only."""

from argparse import Namespace

from durableflows import health, metrics
from durableflows.explain_words import plain
from durableflows.housekeeping import Job
from durableflows.management import tables
from durableflows.management.library_tables import table
from durableflows.management.tables import Report
from durableflows.metrics.values import ALL, WINDOW, age

PAGE = "docs/reference/metrics.md"
TOP = f"""\
# Metrics

Printed from `durableflows/metrics/values.py` by `manage.py durableflows graph --write-docs`; do not edit.

All are gauges, computed from the rows when they are asked for: workers count nothing, so none that dies takes a figure
with it, and one web process answers for all. "Lately" is the last {int(WINDOW.total_seconds() / 60)} minutes. A metric
of which there is nothing has no sample.
[How to read them](../howto/watch-with-prometheus.md)."""


def show_health(options: Namespace) -> Report:
    """Does what should go on by itself? Exit code 1 when something is red."""
    seen = health.examine()
    checks = [
        {
            "check": one.name,
            "value": one.value,
            "count": one.count,
            "limit": one.limit,
            "red": one.is_red,
            "cure": one.cure,
        }
        for one in seen.checks
    ]
    jobs = [{"job": one.name, "ran_at": one.ran_at, "error": one.error} for one in seen.jobs]
    lines = [*summary(seen), *(f"     {one.cure}" for one in seen.checks if one.is_red)]
    lines += tables.section("periodic jobs, last done", (_job(seen, one) for one in seen.jobs))
    lines += tables.section("runs under way", (f"{count:>7,}  {state}" for state, count in seen.runs.items()))
    lines += tables.section("their open steps", (f"{count:>7,}  {state}" for state, count in seen.steps.items()))
    data = {"status": seen.word, "at": seen.at, "checks": checks, "jobs": jobs}
    return Report({**data, "runs": seen.runs, "steps": seen.steps}, lines, 0 if seen.is_well else 1)


def summary(seen: health.Health) -> list[str]:
    """A line a check."""
    return [f"{one.word:3}  {one.name}: {_figure(one)}, red above {one.limit:g}; {one.says}" for one in seen.checks]


def _figure(one: health.Check) -> str:
    return f"{one.value:g}" if one.count is None else f"{one.value:g} ({one.count:,} rows)"


def _job(seen: health.Health, one: Job) -> str:
    done = f"{age(seen.at, one.ran_at):.0f} s ago" if one.ran_at else "not said yet"
    return f"{one.name}: {done}" + (f"; it fails: {plain(one.error)}" if one.error else "")


def show_metrics(options: Namespace) -> Report:
    """All figures."""
    samples = metrics.collect()
    rows = [(one.kind.name, dict(zip(one.kind.labels, one.labels, strict=True)), one.value) for one in samples]
    data = [{"name": name, "labels": labels, "value": value} for name, labels, value in rows]
    return Report(data, [f"{name}{_labels(labels)} {value:g}" for name, labels, value in rows])


def _labels(labels: dict[str, str]) -> str:
    told = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{told}}}" if told else ""


def page() -> str:
    """docs/reference/metrics.md."""
    rows = [
        (f"`{kind.name}`", ", ".join(f"`{label}`" for label in kind.labels), kind.says, kind.source) for kind in ALL
    ]
    return "\n\n".join([TOP, table(("Metric", "Labels", "Meaning", "Source"), rows)]) + "\n"
