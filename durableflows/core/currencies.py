"""ISO 4217 as data: each currency's code and how many decimals it has.

Owns the table and the symbols for plain-text display. `core.money` reads it; gateways may, for
their own exceptions. Never converts between currencies and never holds a rate.

Source: ISO 4217 list one, active codes, as published on 2026-01-01. Codes without a minor unit (metals, test
and unit-of-account codes) are left out on purpose: nobody is paid in them.
"""

from types import MappingProxyType

_BY_EXPONENT = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: (
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF "
        "CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL "
        "HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU "
        "MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR "
        "SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED "
        "VES WST XAD XCD XCG YER ZAR ZMW ZWG"
    ),
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}

EXPONENTS = MappingProxyType(
    {code: exponent for exponent, codes in _BY_EXPONENT.items() for code in codes.split()},
)
"""Currency code -> number of decimals: {"USD": 2, "JPY": 0, "KWD": 3, ...}."""

SYMBOLS = MappingProxyType(
    {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "AUD": "A$", "CAD": "CA$", "NZD": "NZ$", "INR": "₹", "KRW": "₩"},
)
"""Currency code -> symbol for display. A currency that is not here is shown by its code."""
