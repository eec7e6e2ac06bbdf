"""What can be seen of an exception that a library raised: its names, what it wraps, and where it was raised.

Pure, and imports no library: classes are known by name, phases by the functions that the traceback passes. Read by
`core.phases` and `core.libraries`; decides nothing.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from types import FrameType

# What an error of a library may wrap, and still be about the same request. Python's own errors end such a chain.
WRAPS: Mapping[str, frozenset[str]] = {
    "httpx": frozenset({"httpcore", "h11", "h2", "socksio"}),
    "httpcore": frozenset({"h11", "h2", "socksio"}),
    "requests": frozenset({"urllib3", "http"}),
    "urllib3": frozenset({"http"}),
    "stripe": frozenset({"httpx", "httpcore", "h11", "requests", "urllib3", "http", "urllib", "durableflows"}),
    "urllib": frozenset({"http"}),
}
PYTHON = frozenset({"", "socket", "ssl"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def library_of(error: BaseException) -> str:
    """Name the library whose error it is; "" for Python's own exceptions."""
    return _library(type(error))


def _library(cls: type) -> str:
    root = cls.__module__.partition(".")[0]
    return "" if root == "builtins" else root


def names(error: BaseException) -> list[str]:
    """Give `library.Class` along the classes it derives from, wherever in the library they are defined."""
    return [f"{_library(cls)}.{cls.__qualname__}".lstrip(".") for cls in type(error).__mro__]


def chain(error: BaseException) -> list[BaseException]:
    """Give the error and those that it wraps on purpose, as far as they are about the same request."""
    found, inside = [error], _wrappable(error)
    while (following := _wrapped(found[-1])) is not None and library_of(following) in inside | PYTHON:
        found.append(following)
        if library_of(following) in PYTHON:
            break
    return found


def _wrappable(error: BaseException) -> frozenset[str]:
    return WRAPS.get(library_of(error), frozenset())


def _wrapped(error: BaseException) -> BaseException | None:
    given = (error.__cause__, getattr(error, "reason", None), *error.args)
    return next((one for one in given if isinstance(one, BaseException)), None)


def handled_before(error: BaseException) -> Iterator[BaseException]:
    """Give the errors that were being handled when the request of this one began: somebody had tried before."""
    own = chain(error)
    library = _wrappable(error) | {library_of(error)}
    seen = {id(one) for one in own}
    for one in own:
        following = one.__context__
        while following is not None and id(following) not in seen:
            seen.add(id(following))
            if not _was_caught_in(following, library):
                yield following
            following = following.__cause__ or following.__context__


def _was_caught_in(error: BaseException, libraries: frozenset[str]) -> bool:
    """Was it caught by the library itself? Then it is what the library's own error comes from."""
    return any(module.partition(".")[0] in libraries for module, _, _ in islice(frames(error), 1))


def frames(error: BaseException) -> Iterator[tuple[str, str, FrameType]]:
    """Give module, function and frame of each call that the error has passed, the outermost first."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        yield str(frame.f_globals.get("__name__", "")), frame.f_code.co_name, frame
        trace = trace.tb_next


def passes(error: BaseException, module: str, *functions: str) -> bool:
    """Has the error passed one of these functions of a module?"""
    return any(name == module and function in functions for name, function, _ in frames(error))


def was_sent_before(error: BaseException) -> bool:
    """Has the library, by itself, sent a request before the one that failed: a retry, a redirect, an authentication?"""
    tries: set[int] = set()
    for one in chain(error):
        caller = ""
        for module, function, frame in frames(one):
            if (module, function) == ("urllib3.connectionpool", "urlopen"):
                tries.add(id(frame))
            if _repeats(module, function, frame, caller):
                return True
            caller = module
    return len(tries) > 1 or _came_after_others(getattr(error, "response", None))


def _repeats(module: str, function: str, frame: FrameType, caller: str) -> bool:
    if module in ("requests.sessions", "requests.hooks"):
        return function in ("resolve_redirects", "dispatch_hook")
    if module == "httpx._client" and function in ("_send_handling_redirects", "_send_handling_auth"):
        return bool(frame.f_locals.get("history"))
    if module == "stripe._http_client" and function.startswith("_request_with_retries_internal"):
        return bool(frame.f_locals.get("num_retries"))
    if module == "redis.retry" and function == "call_with_retry" and caller == "redis.client":
        return int(frame.f_locals.get("failures", 0)) > 1
    return module.startswith("redis.") and "cluster" in module


def _came_after_others(response: object) -> bool:
    """Of an answer: were there redirects or retries before it?"""
    retries = getattr(getattr(response, "raw", None), "retries", None)
    return bool(getattr(response, "history", None)) or bool(getattr(retries, "history", None))


def only_reads(error: BaseException) -> bool:
    """Is it about a request by a method that changes nothing (RFC 9110, 9.2.1), and about that one alone?"""
    try:
        method = str(getattr(getattr(error, "request", None), "method", "")).upper()
    except Exception:  # noqa: BLE001 - httpx refuses to say when no request was given
        return False
    return method in SAFE_METHODS and not was_sent_before(error)
