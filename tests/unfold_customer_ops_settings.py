"""The customer_ops project with django-unfold in front of Django's admin, and with workflows of the tests beside its
own: for browser tests, and to look at by hand.

`DJANGO_SETTINGS_MODULE=tests.unfold_customer_ops_settings python manage.py runserver` beside a demo, with the demo's
CUSTOMER_OPS_DATA, shows the same rows in the other theme.
"""

from customer_ops.settings import *  # noqa: F403 - the same project
from customer_ops.settings import DURABLEFLOWS as ENGINE
from customer_ops.settings import INSTALLED_APPS as APPS
from customer_ops.settings import MIDDLEWARE as LAYERS

INSTALLED_APPS = ["unfold", *APPS, "tests.browser_app"]
# Rows of tests stand still, however old they grow: here that is well, at the other site it is red.
DURABLEFLOWS = {**ENGINE, "HEALTH_LATE_SECONDS": 2_592_000.0, "HEALTH_QUEUE_SECONDS": 2_592_000.0}
# unfold's own pages are written for Alpine, which the project's policy forbids; the engine's pages bring their own.
MIDDLEWARE = [name for name in LAYERS if name != "customer_ops.security.ContentSecurityPolicy"]
