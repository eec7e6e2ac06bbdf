"""R39: every page of the console and the admin with many runs: few queries, none that counts or sorts a whole table.

Milliseconds with a million runs are measured by `python -m tests.measure_console`.
"""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.support.crowded_console import crowd, pages
from tests.support.measured_pages import SHOWN

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

MOST_QUERIES = 14


def test_each_page_takes_few_queries_and_none_of_them_counts_everything():
    client = crowd(runs=300, events=3, long=300)
    wrong = []
    for name, address in pages():
        client.get(address)  # what a process keeps is kept now
        with CaptureQueriesContext(connection) as queries:
            response = client.get(address)
        assert response.status_code in SHOWN, (name, address)
        if len(queries) > MOST_QUERIES:
            wrong.append(f"{name}: {len(queries)} queries")
        wrong += [f"{name}: {one['sql']}" for one in queries if re.search(r"SELECT COUNT\(\*\)[^(]*$", one["sql"])]

    assert wrong == []
