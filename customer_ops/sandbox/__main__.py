"""Start the sandbox: `python -m customer_ops.sandbox --port 8100 --books .data/payments.sqlite3`.

Prints one line of JSON with both addresses when it can be reached, and stops on SIGTERM or Ctrl-C.
Each option has an environment variable of the same name: `--fault-rate` is SANDBOX_FAULT_RATE.
"""

import argparse
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from customer_ops.sandbox.books import Books
from customer_ops.sandbox.courier import Endpoint
from customer_ops.sandbox.faults import FaultPlan, Kind, Rate
from customer_ops.sandbox.holds import Holds
from customer_ops.sandbox.provider import Provider, Terms
from customer_ops.sandbox.server import Sandbox


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop."""
    parser = _parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    # Blocked before any thread starts, so that only this thread is told.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        sandbox = _sandbox(options)
    except (OSError, ValueError) as error:  # the port is taken, the folder cannot be written, a rate of 2
        parser.error(str(error))
    sys.stdout.write(json.dumps({"url": sandbox.url, "control_url": sandbox.control_url}) + "\n")
    sys.stdout.flush()
    if options.end_with_stdin:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    sandbox.close()
    return 0


def _end_with_stdin() -> None:
    """Stop when whoever started us is gone, however it went: its end of the pipe closes with it."""
    while os.read(0, 4096):  # not sys.stdin: its lock, held by this thread, would abort the interpreter at its end
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _sandbox(options: argparse.Namespace) -> Sandbox:
    rate = Rate(rate=options.fault_rate, seed=options.fault_seed, mix=read_mix(options.fault_mix))
    terms = Terms(
        account_key=options.key,
        key_window_seconds=options.key_window_seconds,
        strict_digits=options.strict_digits,
        search_lag_seconds=options.search_lag_seconds,
    )
    provider = Provider(Books(options.books), FaultPlan(rate), Holds(), terms)
    endpoint = Endpoint(options.webhook_url, options.webhook_secret) if options.webhook_url else None
    ports = {"port": options.port, "control_port": options.control_port}
    return Sandbox(provider, host=options.host, **ports, endpoint=endpoint)


def read_mix(text: str) -> dict[Kind, float]:
    """Read `cut_after:2,rate_limited`: kinds with their weights; empty means the default mix."""
    entries = (entry.partition(":") for entry in text.replace(" ", "").split(",") if entry)
    return {Kind(kind): float(weight or 1) for kind, _, weight in entries}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m customer_ops.sandbox", description="A local payment provider.")
    _option(parser, "--host", "127.0.0.1", str, "address to listen on")
    _option(parser, "--port", "8100", int, "the provider's port; 0 takes a free one")
    _option(parser, "--control-port", "0", int, "a second port for control alone; 0 takes a free one")
    _option(parser, "--books", ".data/payments.sqlite3", Path, "the file with the books")
    _option(parser, "--key", "sk_test_local", str, "the account's key")
    _option(parser, "--key-window-seconds", "86400", float, "how long idempotency keys are remembered")
    _option(parser, "--search-lag-seconds", "0", float, "how far the search for tickets is behind")
    _option(parser, "--fault-rate", "0", float, "share of POST requests that go wrong, 0 to 1")
    _option(parser, "--fault-seed", "0", int, "seed of that chance")
    _option(parser, "--fault-mix", "", str, "kinds and weights, for example cut_after:2,rate_limited")
    _option(parser, "--webhook-url", "", str, "where events are told; none are without it")
    _option(parser, "--webhook-secret", "whsec_local", str, "what they are signed with")
    _option(parser, "--log-level", "warning", str, "debug shows each request")
    parser.add_argument(
        "--strict-digits",
        action=argparse.BooleanOptionalAction,
        default=os.environ.get("SANDBOX_STRICT_DIGITS") == "1",
        help="refuse amounts in three-decimal currencies that do not end in 0, as Stripe does",
    )
    parser.add_argument("--end-with-stdin", action="store_true", help="stop when standard input closes")
    return parser


def _option(parser: argparse.ArgumentParser, flag: str, default: str, kind: type, text: str) -> None:
    variable = "SANDBOX_" + flag.removeprefix("--").replace("-", "_").upper()
    note = f"{text} ({variable}; default: {default or 'none'})"
    parser.add_argument(flag, type=kind, default=os.environ.get(variable, default), help=note)


if __name__ == "__main__":
    sys.exit(main())
