"""Stripe's rules about currencies, as data: which it knows, the least it charges, which last digits it takes.

Owned by the sandbox alone: the gateway has its own table, so that each is a witness against the other.
Source: Stripe's documentation, "Supported currencies" and "Minimum and maximum charge amounts".
"""

from customer_ops.sandbox.answers import ApiError

_CODES = (
    "usd aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bhd bif bmd bnd bob brl bsd bwp byn bzd cad cdf chf "
    "clp cny cop crc cve czk djf dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gnf gtq gyd hkd hnl htg huf idr ils "
    "inr isk jmd jod jpy kes kgs khr kmf krw kwd kyd kzt lak lbp lkr lrd lsl mad mdl mga mkd mmk mnt mop mur mvr mwk "
    "mxn myr mzn nad ngn nio nok npr nzd omr pab pen pgk php pkr pln pyg qar ron rsd rub rwf sar sbd scr sek sgd shp "
    "sle sos srd std szl thb tjs tnd top try ttd twd tzs uah ugx uyu uzs vnd vuv wst xaf xcd xof xpf yer zar zmw"
)
SUPPORTED = frozenset(_CODES.split())

MINIMUM_CHARGE = {
    "aed": 200, "aud": 50, "bgn": 100, "brl": 50, "cad": 50, "chf": 50, "czk": 1500, "dkk": 250, "eur": 50, "gbp": 30,
    "hkd": 400, "huf": 17500, "inr": 50, "jpy": 50, "mxn": 1000, "myr": 200, "nok": 300, "nzd": 50, "pln": 200,
    "ron": 200, "sek": 300, "sgd": 50, "thb": 1000, "usd": 50,
}  # fmt: skip

# Sent with two decimals although the currency has none; the decimals must be 00.
WHOLE_UNITS = {"isk": 100, "ugx": 100}
# Three decimals, but card networks round: the last digit must be 0.
LAST_DIGIT_ZERO = {"bhd": 10, "jod": 10, "kwd": 10, "omr": 10, "tnd": 10}


def check_known(currency: str) -> None:
    """Refuse a currency that the provider does not take."""
    if currency not in SUPPORTED:
        raise ApiError(400, f"Invalid currency: {currency}. See the list of supported currencies.", param="currency")


def check_minimum(amount: int, currency: str) -> None:
    """Refuse a charge that is too small to be worth a card payment."""
    least = MINIMUM_CHARGE.get(currency, 1)
    if amount < least:
        message = f"Amount must be at least {least} {currency} in minor units"
        raise ApiError(400, message, code="amount_too_small", param="amount")


def check_digits(amount: int, currency: str, *, strict: bool) -> None:
    """Refuse an amount with digits that Stripe does not take in this currency.

    `strict` adds the rule for three-decimal currencies. It is off by default: a refund of KWD 1.234 then arrives as
    1234 and is booked, which lets the books show that no digit was lost on the way.
    """
    steps = WHOLE_UNITS | LAST_DIGIT_ZERO if strict else WHOLE_UNITS
    step = steps.get(currency, 1)
    if amount % step:
        message = f"Amounts in {currency} must be divisible by {step}"
        raise ApiError(400, message, code="parameter_invalid_integer", param="amount")
