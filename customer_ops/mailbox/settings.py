"""Django's settings for the mail page alone: no database, no log-in, no session; this machine only.

MAILBOX_FOLDER: where the mails are · MAILBOX_DESK: address to go back to.
"""

import os
import secrets
from pathlib import Path

ROOT = Path(__file__).resolve().parent
MAILBOX_FOLDER = Path(os.environ.get("MAILBOX_FOLDER") or ROOT.parents[1] / ".data" / "mail")
MAILBOX_DESK = os.environ.get("MAILBOX_DESK", "")

SECRET_KEY = secrets.token_hex()  # nothing is signed
DEBUG = False
# Another name that a stranger's page lets point here (DNS rebinding) is refused.
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS: list[str] = []
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "customer_ops.security.ContentSecurityPolicy",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "customer_ops.mailbox.urls"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [ROOT / "templates"]}]
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "no-referrer"
USE_TZ = True
TIME_ZONE = os.environ.get("TIME_ZONE", "UTC")
STATIC_URL = "static/"
STATIC_ROOT = ROOT.parent / "static"  # the desk's own look
