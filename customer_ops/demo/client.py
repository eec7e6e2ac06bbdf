"""A browser as plain as can be: logs in, reads forms, sends them back. What a person does, by HTTP alone."""

import re
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from typing import Self

import httpx


class PageError(Exception):
    """A page was not what a person would expect; says which page and what it showed."""


class _Inputs(HTMLParser):
    """Names and values of the inputs, by the address that their form is sent to."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[str, dict[str, str]]] = []
        self._area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append((values.get("action", ""), {}))
        elif tag in ("input", "textarea") and self.forms and values.get("name"):
            self.forms[-1][1][values["name"]] = values.get("value", "")


class Person:
    """Somebody at the pages, with a session of their own."""

    def __init__(self, url: str, name: str, password: str) -> None:
        self._http = httpx.Client(base_url=url, follow_redirects=True, timeout=30, trust_env=False)
        self.name = name
        page = self._http.get("/login/")
        answer = self._send(page, {"username": name, "password": password}, action="")
        if "sessionid" not in self._http.cookies:
            raise PageError(f"{name} cannot log in: {words(answer.text)[:300]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def read(self, path: str) -> str:
        """The words of a page."""
        return words(self._get(path).text)

    def ask_for_refund(self, order: str, *, amount: str, reason: str, times: int = 1) -> list[int]:
        """Fill the refund form of an order's page once, and send it `times` times at once. Returns the HTTP codes."""
        page = self._get(f"/orders/{order}/")
        fields = {"amount": amount, "reason": reason}
        with ThreadPoolExecutor(times) as hands:
            sent = [hands.submit(self._send, page, fields, action="/refund/") for _ in range(times)]
        return [answer.result().status_code for answer in sent]

    def decide(self, request_id: str, verdict: str, *, comment: str, **changed: str) -> None:
        """Open a request's decision page and answer it. Raises PageError when the answer is not taken.

        changed   fields of what an approver may change, by their names in the form
        """
        path = f"/admin/durableflows/approvalrequest/{request_id}/decide/"
        answer = self._send(self._get(path), {"verdict": verdict, "comment": comment, **changed}, action="")
        if answer.status_code != 200:
            raise PageError(
                f"{verdict} of {self.name} was answered with {answer.status_code}: {words(answer.text)[:300]}"
            )

    def decide_at(self, link: str, verdict: str, *, comment: str) -> str:
        """Follow a link from a mail and answer on the page that it leads to. Returns the words of the page after it."""
        answer = self._send(self._get(link), {"verdict": verdict, "comment": comment}, action="")
        if answer.status_code != 200:
            raise PageError(f"{link} answers {self.name} with {answer.status_code}: {words(answer.text)[:300]}")
        return words(answer.text)

    def _get(self, path: str) -> httpx.Response:
        page = self._http.get(path)
        if page.status_code != 200:
            raise PageError(f"{path} answers {self.name} with {page.status_code}: {words(page.text)[:300]}")
        return page

    def _send(self, page: httpx.Response, fields: dict[str, str], *, action: str) -> httpx.Response:
        parser = _Inputs()
        parser.feed(page.text)
        for target, inputs in parser.forms:
            if "csrfmiddlewaretoken" in inputs and (action in target if action else set(fields) & set(inputs)):
                url = httpx.URL(page.url).join(target) if target else page.url
                return self._http.post(url, data=inputs | fields, headers={"Referer": str(page.url)})
        raise PageError(f"{page.url.path} has no form for {', '.join(fields)}: {words(page.text)[:300]}")


def words(html: str) -> str:
    """The text of a page, tags and blank space folded away."""
    text = re.sub(r"(?s)<(script|style).*?</\1>|<[^>]+>", " ", html)
    return re.sub(r"\s+", " ", text).strip()
