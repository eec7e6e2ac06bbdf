"""Charts as numbers: what is there is seen, what is more stands higher, and nothing leaves the drawing."""

from datetime import UTC, datetime, timedelta

import pytest

from durableflows.reading.charts import FULL, latency, said, throughput
from durableflows.reading.ends import Hour

NINE = datetime(2026, 11, 30, 9, tzinfo=UTC)


def hours(*given: Hour) -> tuple[list[Hour], list[str]]:
    return list(given), [str(number) for number, _ in enumerate(given)]


def test_parts_of_a_bar_stand_on_each_other_and_one_of_a_thousand_is_seen():
    chart = throughput(*hours(Hour(NINE, {"SUCCEEDED": 999, "FAILED": 1}), Hour(NINE, {"CANCELLED": 1}), Hour(NINE)))

    assert chart is not None
    good, bad = chart.columns[0].bars
    assert (good.look, bad.look) == ("good", "bad")
    assert bad.y + bad.height == good.y
    assert good.y + good.height == FULL
    assert bad.height > 0
    assert [bar.look for bar in chart.columns[1].bars] == ["calm"]
    assert chart.columns[2].bars == []
    assert chart.labels == ["1,000", "500", "0"]


@pytest.mark.parametrize(
    ("most", "top"), [(1, "2"), (2, "2"), (5, "6"), (10, "10"), (11, "20"), (81, "100"), (950, "1,000")]
)
def test_the_scale_ends_at_a_round_number_that_can_be_halved(most: int, top: str):
    chart = throughput(*hours(Hour(NINE, {"FAILED": most})))

    assert chart is not None
    assert chart.labels[0] == top


def test_spans_from_milliseconds_to_a_year_stay_in_the_drawing_and_in_their_order():
    spans = [(0.0, 0.0), (0.2, 0.9), (1, 1), (30, 86400), (40 * 86400, 900 * 86400)]
    given = [Hour(NINE, {"SUCCEEDED": 1}, timedelta(seconds=a), timedelta(seconds=b)) for a, b in spans]

    chart = latency(*hours(*given, Hour(NINE)))

    assert chart is not None
    bars = [column.bars for column in chart.columns]
    assert all(bar.y >= 0 and bar.y + bar.height <= FULL and bar.height > 0 for column in bars for bar in column)
    middles = [column[1].y for column in bars[:-1]]
    assert middles == sorted(middles, reverse=True)
    assert bars[-1] == []
    assert latency(*hours(Hour(NINE, {"FAILED": 1}))) is None


def test_one_span_has_a_scale_around_it():
    chart = latency(*hours(Hour(NINE, {"SUCCEEDED": 1}, timedelta(seconds=5), timedelta(seconds=5))))

    assert chart is not None
    assert chart.labels == ["10 s", "1 s"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.004, "4 ms"),
        (2.25, "2.2 s"),
        (59.7, "60 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600 * 26, "1 d 2 h"),
        (-5, "0 ms"),
    ],
)
def test_a_span_is_said_in_two_numbers_at_most(seconds: float, words: str):
    assert said(timedelta(seconds=seconds)) == words
    assert said(None) == "–"
