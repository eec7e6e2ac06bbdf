"""Verbs that examine rows and say what is wrong with them. They change nothing."""

import dataclasses
from argparse import Namespace
from datetime import timedelta

from durableflows import api, clock, doctor, gate, health
from durableflows.doctor import Finding, Severity
from durableflows.explain_words import plain
from durableflows.management import monitors, progress, tables
from durableflows.management.tables import Report


def examine(options: Namespace) -> Report:
    """Prove the promises from the rows."""
    found = doctor.examine(api.get(options.run).pk if options.run else None)
    is_ill = any(one.severity is Severity.BROKEN for one in found) or (options.strict and bool(found))
    data = [
        {"severity": one.severity, "code": one.code, "run": one.run_id, "text": one.text, "cure": one.cure}
        for one in found
    ]
    counts = {severity: sum(one.severity is severity for one in found) for severity in Severity}
    total = ", ".join(f"{count} {severity}" for severity, count in counts.items())
    engine = [] if options.run else tables.section("engine", monitors.summary(health.examine()))
    lines = [*_findings(found), total if found else "nothing is broken, due or needs attention", *engine]
    return Report(data, lines, int(is_ill))


def verify(options: Namespace) -> Report:
    """Prove the evidence: histories, seals, what steps were given, artifacts. Fails when anything does not agree."""
    run_id = api.get(options.run).pk if options.run else None
    since = clock.now() - options.since if isinstance(options.since, timedelta) else options.since
    proof = doctor.verify(run_id, since=since, progress=progress.shown("runs"))
    seen = {"runs": proof.runs, "events": proof.events, "steps": proof.steps, "artifacts": proof.artifacts}
    found = [{"code": one.code, "run": one.run_id, "text": one.text, "cure": one.cure} for one in proof.findings]
    total = ", ".join(f"{count:,} {name}" for name, count in seen.items())
    verdict = f"{len(found)} findings" if found else "all of it agrees"
    return Report({**seen, "findings": found}, [*_findings(proof.findings), f"{total}: {verdict}"], int(bool(found)))


def _findings(found: tuple[Finding, ...]) -> list[str]:
    """Each with its cure, which is said once for findings of the same code that follow each other."""
    lines: list[str] = []
    for place, one in enumerate(found):
        run = f" run {one.run_id}" if one.run_id else ""
        lines.append(f"{one.severity} [{one.code}]{run}: {plain(one.text)}")
        is_last = place + 1 == len(found) or (found[place + 1].code, found[place + 1].cure) != (one.code, one.cure)
        lines += [f"  {one.cure}"] if is_last else []
    return lines


def look_through_gate(options: Namespace) -> Report:
    """Could every live run go on under this code? Fails when one could not."""
    verdict = gate.examine()
    rows = [dataclasses.asdict(obstacle) for obstacle in verdict.obstacles]
    lines = [f"{verdict.runs} runs are under way; " + ("all can go on" if verdict.is_open else "some could not go on")]
    for one in verdict.obstacles:
        word = "STOPS" if one.stops else "note"
        lines += [
            f"{word}: {one.runs} of {one.workflow} version {one.version}: {plain(one.text)} (such as {one.example})",
            f"    {one.cure}",
        ]
    return Report(
        {"runs": verdict.runs, "open": verdict.is_open, "obstacles": rows}, lines, 0 if verdict.is_open else 1
    )
