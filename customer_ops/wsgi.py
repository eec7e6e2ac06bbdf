"""What a WSGI server loads: `customer_ops.wsgi:application`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "customer_ops.settings")

application = get_wsgi_application()
