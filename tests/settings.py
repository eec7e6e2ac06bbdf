"""The smallest project that durableflows and customer_ops run in, for tests and the type checker.

DATABASE_URL and CELERY_BROKER_URL name real servers: `make test`, or `python -m tests.services -- pytest`, starts them.
Without DATABASE_URL this module still loads, so that pure tests and mypy need no server, and every test that asks for
the database fails (tests/conftest.py): nothing falls back to SQLite.
"""

import os
from pathlib import Path

from customer_ops.environment import read_broker_url, read_database_url

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / ".data" / "tests"

SECRET_KEY = "only for tests"
DEBUG = False
ALLOWED_HOSTS = ["testserver", "localhost", "127.0.0.1"]
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.admin",
    "durableflows",
    "customer_ops",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "customer_ops.security.ContentSecurityPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "customer_ops.links.demo_pages",
            ],
        },
    },
]

ROOT_URLCONF = "customer_ops.urls"
STATIC_URL = "static/"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "orders"
LOGOUT_REDIRECT_URL = "login"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# An absent address is Django's dummy backend, which refuses each query.
DATABASE_URL = os.environ.get("DATABASE_URL", "")
DATABASES = read_database_url(DATABASE_URL, folder=DATA) if DATABASE_URL else {"default": {}}
for database in DATABASES.values():
    database["CONN_MAX_AGE"] = 0  # tests count and kill connections

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick, for log-ins by the thousand
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
DEMO_MAIL_PAGE = ""
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

# Nobody listens there: a test that pays says which sandbox it means.
PAYMENTS_URL = os.environ.get("PAYMENTS_URL", "http://127.0.0.1:9")
PAYMENTS_KEY = os.environ.get("PAYMENTS_KEY", "sk_test_local")
PAYMENTS_WEBHOOK_SECRETS = ["whsec_tests"]
PAYMENTS_TIMEOUT_SECONDS = float(os.environ.get("PAYMENTS_TIMEOUT_SECONDS", "10"))
PAYMENTS_SETTLE_SECONDS = float(os.environ.get("PAYMENTS_SETTLE_SECONDS", "30"))
TICKETS_URL, TICKETS_KEY = "", "sk_test_local"
CUSTOMER_OPS_DATA = DATA
DEFAULT_FROM_EMAIL = "Customer support <support@localhost>"

REFUND_LIMITS_MINOR = {"USD": 50_000}
REFUND_LIMIT_CURRENCY = "USD"
REFUND_RATES: dict[str, str] = {}
REFUND_WINDOW_SECONDS = 86_400

# Celery, as customer_ops.settings sets it: early acknowledgement, no results, no retry but the engine's.
CELERY = read_broker_url(os.environ.get("CELERY_BROKER_URL", "") or "memory://", folder=DATA / "broker")
CELERY_BROKER_URL = CELERY["broker_url"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = CELERY["broker_connection_retry_on_startup"]
CELERY_BROKER_TRANSPORT_OPTIONS = CELERY.get("broker_transport_options", {})
CELERY_WORKER_DISABLE_PREFETCH = CELERY.get("worker_disable_prefetch", False)
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_ENABLE_UTC = True
CELERY_TIMEZONE = "UTC"

DURABLEFLOWS: dict[str, object] = {}
