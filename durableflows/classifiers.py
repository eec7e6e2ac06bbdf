"""What an exception means: the project is asked first, by DURABLEFLOWS["CLASSIFIERS"], then the engine's own table.

Runs the project's code, so it is never called inside a transaction of the engine (P11). A classifier that fails loses
nothing: its exception is in doubt. Called by the runner and the step's context.
"""

from collections.abc import Callable
from functools import lru_cache

from django.utils.module_loading import import_string

from durableflows.conf import settings
from durableflows.core import libraries, log_lines
from durableflows.core.definition import StepDefinition
from durableflows.errors import DurableflowsError, KeyConflict, StepFailure

logger = log_lines.logger("durableflows.classifiers")

Classifier = Callable[[Exception], StepFailure | KeyConflict | None]


def inside(error: BaseException) -> BaseException:
    """Give what was raised inside an effect as one of our exceptions, or as it is when nobody knows it."""
    if isinstance(error, DurableflowsError) or not isinstance(error, Exception):
        return error
    return _meaning(error, libraries.inside)


def outside(error: Exception, step: StepDefinition) -> Exception:
    """Give what left a step's body as one of our exceptions, or as it is: an error in our code.

    What the step itself maps, by `permanent` and `transient`, is left to that map.
    """
    if isinstance(error, (DurableflowsError, *step.permanent, *step.transient)):
        return error
    found = _meaning(error, libraries.outside)
    assert isinstance(found, Exception)
    return found


def _meaning(error: Exception, by_table: Callable[[Exception], DurableflowsError | None]) -> BaseException:
    try:
        meant = by_project(error) or by_table(error)
    except Exception:
        logger.exception("what %s means could not be found out: in an effect it is in doubt", type(error).__name__)
        return error
    except BaseException as end:  # noqa: BLE001 - the end of the process, say: obeyed when the outcome is recorded
        return end
    if meant is None:
        return error
    meant.__cause__ = error
    return meant


def by_project(error: Exception) -> StepFailure | KeyConflict | None:
    """Ask the project's classifiers in turn; None: none of them knows it.

    Raises whatever a classifier raises, and TypeError for an answer that is none: nobody else is asked then.
    """
    for path in settings().CLASSIFIERS:
        meant = load(path)(error)
        if meant is not None and not isinstance(meant, StepFailure | KeyConflict):
            raise TypeError(f"{path} returned {type(meant).__name__}, neither one of our exceptions nor None")
        if meant is not None:
            return meant
    return None


@lru_cache(maxsize=64)
def load(path: str) -> Classifier:
    """Import the callable that the setting names. Raises ImportError, or TypeError when it is not one."""
    found = import_string(path)
    if not callable(found):
        raise TypeError(f"it is {type(found).__name__}, not a callable")
    classifier: Classifier = found
    return classifier
