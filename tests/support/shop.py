"""A client of the payment sandbox as plain as can be: what is sent is what a test says."""

import httpx


class Shop:
    """One account at one address; each call is a connection of its own."""

    def __init__(self, url: str, *, key: str = "sk_test_local", timeout_seconds: float = 5.0) -> None:
        self._url, self._key, self._timeout_seconds = url, key, timeout_seconds

    def post(self, path: str, key: str | None = None, /, **params: object) -> httpx.Response:
        data = {name.replace("meta_", "metadata[") + "]" if name.startswith("meta_") else name: value
                for name, value in params.items()}  # fmt: skip
        with self.connection() as http:
            return http.post(path, data=data, headers={"Idempotency-Key": key} if key else {})

    def get(self, path: str, /, **params: object) -> httpx.Response:
        with self.connection() as http:
            return http.get(path, params={name: str(value) for name, value in params.items()})

    def connection(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self._key}"}
        # Without certificates: reading them takes longer than all that a test does here.
        return httpx.Client(
            base_url=self._url, headers=headers, timeout=self._timeout_seconds, trust_env=False, verify=False
        )

    def charge(self, amount: int = 1000, currency: str = "usd", **params: object) -> str:
        answer = self.post("/v1/charges", amount=amount, currency=currency, source="tok_visa", **params)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def refund(self, charge: str, key: str | None = None, /, **params: object) -> httpx.Response:
        return self.post("/v1/refunds", key, charge=charge, **params)
