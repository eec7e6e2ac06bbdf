"""The tests' project with django-unfold in front of Django's admin: the engine's pages must look and work there too.

For tests/console/test_admin_unfold.py, which runs a process with these settings: the list of apps is read once.
"""

from tests.settings import *  # noqa: F403 - the same project
from tests.settings import DATABASES
from tests.settings import INSTALLED_APPS as APPS

INSTALLED_APPS = ["unfold", *APPS]
# The tests that started this process use the other one at the same time.
for database in DATABASES.values():
    if database:
        database["TEST"] = {"NAME": "test_durableflows_unfold"}
