"""`python -m tests.guards [NAME…]`: drop each guard, or those whose name, file or finder has one of the words.

`--write` prints docs/reference/guards.md instead. Exit code 1 when a guard's loss went unnoticed.
"""

import sys
import time
from collections.abc import Mapping, Sequence

from tests.guards import page
from tests.guards.listed import GUARDS, changes_of
from tests.guards.runner import Verdict, judge, judge_all
from tests.guards.values import Guard
from tests.services import running_services


def chosen(words: Sequence[str]) -> list[Guard]:
    """The guards that are meant; all without a word."""
    places = [(one, f"{one.name} {one.file} {one.found_by}") for one in GUARDS]
    return [one for one, place in places if not words or any(word in place for word in words)]


def drop(guards: Sequence[Guard], environment: Mapping[str, str]) -> list[Guard]:
    """Drop each in turn and tell; gives back those whose loss nobody noticed."""
    unnoticed = []
    for number, guard in enumerate(guards, 1):
        verdict = judge(guard, changes_of(guard), environment)
        if not verdict.is_red:
            unnoticed.append(guard)
        _tell(f"{number}/{len(guards)}", guard, verdict)
    return unnoticed


def _tell(place: str, guard: Guard, verdict: Verdict) -> None:
    word = "found" if verdict.is_red else "UNNOTICED"
    name = f"{guard.name} (and: {guard.covered_by})" if guard.covered_by else guard.name
    print(f"{place} {word} {name} · {guard.kind} · {verdict.seconds:.0f} s · {verdict.why[:160]}", flush=True)


def main(words: Sequence[str]) -> int:
    """Look whether the finders are green, then drop the guards."""
    if "--write" in words:
        page.write()
        return 0
    began, guards = time.monotonic(), chosen(words)
    if not guards:
        print("no guard has such a word in its name, file or finder", file=sys.stderr)
        return 2
    with running_services() as environment:
        finders = list(dict.fromkeys(guard.found_by for guard in guards))
        print(f"{len(guards)} guards, {len(finders)} finders; first the code as it is …", flush=True)
        whole = judge_all(finders, environment)
        if whole.is_red or whole.why:
            print(f"a finder is red on the code as it is: {whole.why}", file=sys.stderr)
            return 1
        unnoticed = drop(guards, environment)
    minutes = (time.monotonic() - began) / 60
    print(f"{len(guards)} guards dropped in {minutes:.1f} min: {len(guards) - len(unnoticed)} found", end="")
    print("".join(f"\nUNNOTICED {guard.name}: {guard.found_by}" for guard in unnoticed))
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
