"""The demo's mail server: what it takes is kept and shown, whatever a stranger wrote into it (R28, R29)."""

import smtplib
import socket
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from tests.support.mailbox import Mailbox, mail, mailbox

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7|add:7 }}{% now "Y" %}'


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mailbox]:
    """One catcher for all tests here: each writes to somebody of its own."""
    with mailbox(tmp_path_factory.mktemp("mailbox")) as running:
        yield running


def test_a_mail_is_listed_and_shown_with_its_text_and_headers(box: Mailbox) -> None:
    box.send(mail("ada@example.com", subject="Refund for R-1", text="Dear Ada,\nwe paid.", message_id="<df_a@shop>"))

    assert "Refund for R-1" in box.read()
    page = box.open_first("ada@example.com")
    assert "Dear Ada,\nwe paid." in page
    assert "&lt;df_a@shop&gt;" in page
    assert "<td>From</td><td><bdi>Support &lt;support@shop.example&gt;</bdi></td>" in page


def test_the_newest_mail_is_first_and_a_recipient_is_found(box: Mailbox) -> None:
    for subject in ("first", "second"):
        box.send(mail("bram@example.com", subject=subject))
    box.send(mail("chiyo@example.com", subject="third"))

    page = box.read("/?to=BRAM")

    assert page.index("second") < page.index("first")
    assert "third" not in page
    assert "No mail to “<bdi>zoe</bdi>” came" in box.read("/?to=zoe")


def test_the_same_message_id_twice_is_said_on_both_pages(box: Mailbox) -> None:
    for _ in range(2):
        box.send(mail("daniel@example.com", message_id="<df_twice@shop>"))

    assert "arrived 2 times" in box.read("/?to=daniel")
    page = box.open_first("daniel@example.com")
    assert "The same Message-ID came 1 more time" in page
    assert "taken, the same text" in page


def test_a_blind_copy_is_shown_for_whom_it_came_for(box: Mailbox) -> None:
    box.send_raw(b"To: somebody@else.example\r\nX-Original-To: forged@example.com\r\n\r\nhello", to="elena@example.com")

    [letter] = box.store.letters(recipient="elena")

    assert letter.recipients == ["elena@example.com"]
    assert box.store.letters(recipient="forged") == []


def test_mails_outlive_a_restart(tmp_path: Path) -> None:
    with mailbox(tmp_path) as running:
        running.send(mail("ada@example.com", subject="before"))

    with mailbox(tmp_path) as running:
        running.send(mail("ada@example.com", subject="after"))

        assert [letter.subject for letter in running.store.letters()] == ["after", "before"]
        assert "before" in running.read()


def test_foreign_text_stays_text_wherever_it_is_shown(box: Mailbox) -> None:
    hostile = f"Subject: {EVIL}\r\nMessage-ID: {EVIL}\r\nX-{EVIL[:1]}: {EVIL}\r\nFrom: {EVIL}\r\n\r\n{EVIL}"
    box.send_raw(hostile.encode(), to="farid@example.com")

    pages = [box.read(), box.open_first("farid@example.com"), box.read(f"/?to={EVIL}")]

    for page in pages:
        assert "<script" not in page
        assert "<img" not in page
        assert "{{ 7|add:7 }}" in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_html_is_shown_as_its_source(box: Mailbox) -> None:
    box.send_raw(b"Content-Type: text/html\r\n\r\n<b onclick=alert(1)>free money</b>", to="grace@example.com")

    page = box.open_first("grace@example.com")

    assert "&lt;b onclick=alert(1)&gt;free money&lt;/b&gt;" in page
    assert "Its HTML is shown as source" in page


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no header at all",
        b"\r\n\r\n",
        b"Subject: =?utf-8?b?!!!?= =?no-such?q?x?= =?utf-8?q?=ff=00?=\r\n\r\nx",
        b"Subject: \xff\xfe\xe2\x80\xae\x01\r\n\r\n\xff\x00\x01",
        b"Content-Type: text/plain; charset=no-such\r\n\r\nx",
        b'Content-Type: text/plain; charset="a\x00b"\r\n\r\nx',
        b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n--x\r\n",
        b"Content-Type: multipart/mixed\r\n\r\nno boundary",
        b"Content-Transfer-Encoding: base64\r\n\r\n!!!!=",
        b"Content-Type: application/pdf; name*=u9''%ff\r\nContent-Disposition: attachment; filename*0*=x''%\r\n\r\nx",
        b"From: " + b"(" * 400 + b"\r\nDate: never\r\n\r\nx",
        b" a line that goes on\r\nSubject: x\r\n\r\nx",
    ],
    ids=range(13),
)
def test_whatever_came_is_shown_and_breaks_no_page(
    box: Mailbox, content: bytes, request: pytest.FixtureRequest
) -> None:
    to = f"hugo{request.node.callspec.id}@example.com"
    box.send_raw(content, to=to)

    assert "<h2>Headers</h2>" in box.open_first(to)
    assert box.page.get("/").status_code == 200


def test_a_file_is_named_and_never_opened(box: Mailbox) -> None:
    message = mail("ines@example.com")
    message.add_attachment(b"x" * 3000, maintype="application", subtype="pdf", filename="../../etc/passwd.pdf")
    box.send(message)

    page = box.open_first("ines@example.com")

    assert "<bdi>../../etc/passwd.pdf</bdi>, application/pdf, 2.9" in page


def test_the_source_is_no_page_for_a_browser(box: Mailbox) -> None:
    box.send_raw(f"Subject: x\r\nContent-Type: text/html\r\n\r\n{EVIL}".encode(), to="jonas@example.com")
    [letter] = box.store.letters(recipient="jonas")

    answer = box.page.get(f"/mails/{letter.key}/source/")

    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert EVIL in answer.text


@pytest.mark.parametrize("path", ["/", "/?to=x", "/mails/nothing/"])
def test_each_answer_forbids_scripts_and_frames(box: Mailbox, path: str) -> None:
    headers = box.page.get(path).headers

    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("path", ["/", "/mails/nothing/", "/?to=x"])
def test_another_name_for_this_machine_is_refused(box: Mailbox, path: str) -> None:
    """DNS rebinding: a stranger's page lets its own name point to 127.0.0.1 and reads what is there."""
    answer = box.page.get(path, headers={"Host": "rebound.example"})

    assert answer.status_code == 400
    assert "Mails" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/mails/../../script/",
        "/mails/..%2f..%2fscript/",
        "/mails/..%2f..%2fscript/source/",
        "/mails/%2e%2e/source/",
        "/mails/%2fetc%2fpasswd/source/",
        "/mails/./source/",
        "/mails/%00/source/",
        "/static/../mailbox/settings.py",
        "/static/..%2fsettings.py",
    ],
)
def test_no_address_leads_out_of_the_mails(box: Mailbox, path: str) -> None:
    with socket.create_connection(("127.0.0.1", box.page.base_url.port or 0), timeout=10) as raw:  # as it is written
        raw.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        answer = raw.makefile("rb").read()

    assert b" 404 " in answer.splitlines()[0]
    assert b"root:" not in answer
    assert b"SECRET" not in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_the_page_only_reads(box: Mailbox, method: str) -> None:
    assert box.page.request(method, "/").status_code == 405


def test_a_web_page_that_posts_to_the_mail_port_leaves_no_mail(box: Mailbox) -> None:
    """A browser sends what a stranger's form says to any port of this machine."""
    smtp = "EHLO x\r\nMAIL FROM:<a@b.c>\r\nRCPT TO:<kavya@example.com>\r\nDATA\r\nSubject: forged\r\n\r\nx\r\n.\r\n"
    head = ["POST / HTTP/1.1", "Host: 127.0.0.1", "User-Agent: x", "Accept: */*", "Origin: http://evil.example"]
    head += ["Content-Type: text/plain", f"Content-Length: {len(smtp)}", "", ""]

    with socket.create_connection(("127.0.0.1", box.smtp_port), timeout=10) as raw:
        raw.sendall(("\r\n".join(head) + smtp).encode())
        raw.makefile("rb").read()

    assert box.store.letters(recipient="kavya") == []


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("RCPT 451 4.3.0 later", smtplib.SMTPRecipientsRefused),
        ("RCPT 550 5.1.1 nobody", smtplib.SMTPRecipientsRefused),
        ("TEXT 451 4.3.0 later", smtplib.SMTPDataError),
        ("TEXT 554 5.7.1 no", smtplib.SMTPDataError),
        ("TEXT cut-before", smtplib.SMTPServerDisconnected),
        ("TEXT cut-after", smtplib.SMTPServerDisconnected),
    ],
)
def test_it_misbehaves_once_for_each_line_of_its_script(box: Mailbox, line: str, error: type[Exception]) -> None:
    to = f"liam-{line.replace(' ', '-')}@example.com"
    box.script.add(line)

    with pytest.raises(error):
        box.send(mail(to))
    box.send(mail(to))

    taken = [letter for letter in box.store.letters(recipient=to) if not letter.refusal]
    assert len(taken) == (2 if line == "TEXT cut-after" else 1)
    assert box.script.lines() == []


def test_a_script_says_which_mails_go_well_before_one_does_not(box: Mailbox) -> None:
    box.script.add("TEXT well", "RCPT well", "TEXT 451 4.3.0 later")

    box.send(mail("pia@example.com"))
    with pytest.raises(smtplib.SMTPDataError):
        box.send(mail("pia@example.com"))

    assert len([one for one in box.store.letters(recipient="pia") if not one.refusal]) == 1


def test_a_mail_that_was_read_and_refused_is_shown_with_the_answer(box: Mailbox) -> None:
    box.script.add("TEXT 451 4.3.0 try again later")
    with pytest.raises(smtplib.SMTPDataError):
        box.send(mail("mai@example.com", message_id="<df_again@shop>"))
    box.send(mail("mai@example.com", message_id="<df_again@shop>"))

    assert "not taken: 451 4.3.0 try again later" in box.read("/?to=mai@")
    assert "not taken, answered with 451 4.3.0 try again later" in box.open_first("mai@example.com")
    assert "arrived 2 times" not in box.read("/?to=mai@")


def test_a_line_that_means_nothing_is_refused_and_dropped(box: Mailbox) -> None:
    with pytest.raises(ValueError, match="is no line of a mail script"):
        box.script.add("TEXT well", "TEXT 250 fine")
    assert box.script.lines() == []
    (box.folder / "script").write_text("nonsense\n")

    box.send(mail("noor@example.com"))

    assert box.script.lines() == []
    assert len(box.store.letters(recipient="noor")) == 1


def test_a_mail_that_cannot_be_kept_is_not_taken(tmp_path: Path) -> None:
    with mailbox(tmp_path) as running:
        tmp = running.folder / "mails" / "tmp"
        tmp.rmdir()
        tmp.write_text("in the way")

        with pytest.raises(smtplib.SMTPDataError) as refused:
            running.send(mail("ada@example.com"))

    assert refused.value.smtp_code == 451


def test_a_page_of_many_leads_to_the_older_ones(tmp_path: Path) -> None:
    with mailbox(tmp_path) as running, smtplib.SMTP("127.0.0.1", running.smtp_port) as connection:
        for number in range(51):
            message: EmailMessage = mail("ada@example.com", subject=f"number {number}.")
            connection.send_message(message)

        assert "number 0." not in running.read("/?to=ada")
        assert "number 0." in running.read("/?page=2&to=ada")
