"""Start the catcher: `python -m customer_ops.mailbox --smtp-port 1025 --page-port 8025 --folder .data/mail`.

Prints one line when both doors are open, and stops on SIGTERM or Ctrl-C. Listens on 127.0.0.1 only.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop."""
    parser = _parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("mail.log").setLevel(logging.WARNING)  # aiosmtpd's: it names recipients
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "customer_ops.mailbox.settings",
        "MAILBOX_FOLDER": str(options.folder.resolve()),
        "MAILBOX_DESK": options.desk,
    }
    # Blocked before any thread starts, so that only this thread is told.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        _open(options)
    except OSError as error:  # a port is taken, the folder cannot be written
        parser.error(str(error))
    sys.stdout.write(
        f"mails for smtp://127.0.0.1:{options.smtp_port} are shown at http://127.0.0.1:{options.page_port}/\n"
    )
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


def _open(options: argparse.Namespace) -> None:
    from customer_ops.mailbox import smtp, web
    from customer_ops.mailbox.script import Script
    from customer_ops.mailbox.store import Store

    page = web.serve(port=options.page_port)
    smtp.serve(Store(options.folder), Script(options.script), port=options.smtp_port)
    threading.Thread(target=page.serve_forever, daemon=True).start()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m customer_ops.mailbox", description="A mail server that only keeps."
    )
    parser.add_argument("--smtp-port", type=int, default=1025, help="where mail is taken")
    parser.add_argument("--page-port", type=int, default=8025, help="where it is shown")
    parser.add_argument("--folder", type=Path, default=Path(".data/mail"), help="where it is kept, as a Maildir")
    parser.add_argument(
        "--script", type=Path, default=Path(".data/mail-script"), help="how to misbehave; see script.py"
    )
    parser.add_argument("--desk", default="", help="an address that the page links to")
    return parser


if __name__ == "__main__":
    sys.exit(main())
