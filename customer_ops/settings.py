"""Settings of the customer_ops project: safe as they stand, and told about a deployment by the environment.

DATABASE_URL, CELERY_BROKER_URL, CELERY_TASK_DEFAULT_QUEUE, SENTRY_DSN · CUSTOMER_OPS_DATA: folder of all kept files ·
DJANGO_SECRET_KEY, DEBUG=1, ALLOWED_HOSTS=a,b, BASE_URL, SECURE=1 with TLS, BEHIND_PROXY=1, STATIC_ROOT, TIME_ZONE ·
PAYMENTS_URL, PAYMENTS_KEY, PAYMENTS_WEBHOOK_SECRETS, PAYMENTS_SETTLE_SECONDS, PAYMENTS_TIMEOUT_SECONDS · TICKETS_URL,
TICKETS_KEY, TICKETS_SETTLE_SECONDS, TICKETS_TIMEOUT_SECONDS · EMAIL_HOST, EMAIL_PORT, EMAIL_HOST_USER,
EMAIL_HOST_PASSWORD, EMAIL_USE_TLS=1, EMAIL_BACKEND, DEFAULT_FROM_EMAIL, MAIL_RESEND_HOURS, DEMO_MAIL_PAGE. A first
try needs none.
"""

import os
from pathlib import Path

from customer_ops.environment import read_broker_url, read_database_url, said_in_a_line
from customer_ops.secret_key import read_or_make_secret_key


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true", "yes", "on")


BASE_DIR = Path(__file__).resolve().parent.parent
CUSTOMER_OPS_DATA = Path(os.environ.get("CUSTOMER_OPS_DATA") or BASE_DIR / ".data").resolve()

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY") or read_or_make_secret_key(CUSTOMER_OPS_DATA)
DEBUG = _is_on("DEBUG")
ALLOWED_HOSTS = ["localhost", "127.0.0.1", *filter(None, os.environ.get("ALLOWED_HOSTS", "").split(","))]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "durableflows",
    "customer_ops",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "customer_ops.security.ContentSecurityPolicy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
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
        "DIRS": [BASE_DIR / "templates"],
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
WSGI_APPLICATION = "customer_ops.wsgi.application"

with said_in_a_line():
    DATABASES = read_database_url(os.environ.get("DATABASE_URL", ""), folder=CUSTOMER_OPS_DATA)
    _BROKER = read_broker_url(os.environ.get("CELERY_BROKER_URL", ""), folder=CUSTOMER_OPS_DATA / "broker")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en-us"
TIME_ZONE = os.environ.get("TIME_ZONE", "UTC")
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = os.environ.get("STATIC_ROOT") or None
# Served from the apps' own folders, so that a first try needs no collectstatic. A deployment names STATIC_ROOT,
# collects them there and may let its web server serve them.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

# -- Log-in, cookies, headers

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "orders"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
# Off by default: the demo listens on 127.0.0.1 without TLS, where secure cookies would never be sent back.
SECURE = _is_on("SECURE")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = SECURE
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _is_on("BEHIND_PROXY") else None

# -- Outside: payments, tickets and mail

PAYMENTS_URL = os.environ.get("PAYMENTS_URL") or "http://127.0.0.1:8100"
PAYMENTS_KEY = os.environ.get("PAYMENTS_KEY") or "sk_test_local"
# What the provider signs its events with, as whsec_a,whsec_b; without one its events are refused.
PAYMENTS_WEBHOOK_SECRETS = [*filter(None, os.environ.get("PAYMENTS_WEBHOOK_SECRETS", "").replace(" ", "").split(","))]
PAYMENTS_TIMEOUT_SECONDS = float(os.environ.get("PAYMENTS_TIMEOUT_SECONDS") or 10)
PAYMENTS_SETTLE_SECONDS = float(os.environ.get("PAYMENTS_SETTLE_SECONDS") or 20 + PAYMENTS_TIMEOUT_SECONDS)

# Without an address, the desk's own list of tickets is the help desk.
TICKETS_URL = os.environ.get("TICKETS_URL", "")
TICKETS_KEY = os.environ.get("TICKETS_KEY", "")
TICKETS_TIMEOUT_SECONDS = float(os.environ.get("TICKETS_TIMEOUT_SECONDS") or 10)
TICKETS_SETTLE_SECONDS = float(os.environ.get("TICKETS_SETTLE_SECONDS") or 80 + TICKETS_TIMEOUT_SECONDS)

EMAIL_HOST = os.environ.get("EMAIL_HOST", "")
EMAIL_PORT = int(os.environ.get("EMAIL_PORT") or 25)
EMAIL_HOST_USER = os.environ.get("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = _is_on("EMAIL_USE_TLS")
EMAIL_FILE_PATH = CUSTOMER_OPS_DATA / "mail"
# Without a server, mails are files in the data folder.
EMAIL_BACKEND = os.environ.get("EMAIL_BACKEND") or (
    "customer_ops.gateways.smtp.TellingBackend" if EMAIL_HOST else "django.core.mail.backends.filebased.EmailBackend"
)
DEFAULT_FROM_EMAIL = os.environ.get("DEFAULT_FROM_EMAIL") or "Customer support <support@localhost>"
# For so long after the first try a mail that may have been lost is sent again, on the risk of a second one; 0: a person
# decides.
MAIL_RESEND_HOURS = float(os.environ.get("MAIL_RESEND_HOURS") or 0)
# Where the demo's mail catcher shows what it took; the desk links to it.
DEMO_MAIL_PAGE = os.environ.get("DEMO_MAIL_PAGE", "")

# -- Refunds: `customer_ops.policies` says what each one means

REFUND_LIMITS_MINOR = {"USD": 50_000}
REFUND_LIMIT_CURRENCY = "USD"
REFUND_RATES: dict[str, str] = {}
REFUND_WINDOW_SECONDS = 86_400

# -- Celery: messages are hints, the rows are the truth. No results, no retries of its own, acknowledged early.

for _name, _value in _BROKER.items():
    globals()[f"CELERY_{_name.upper()}"] = _value
# A name of one's own keeps two installations apart that share a broker: tasks, events, remote control.
CELERY_TASK_DEFAULT_QUEUE = os.environ.get("CELERY_TASK_DEFAULT_QUEUE") or "celery"
CELERY_EVENT_EXCHANGE = f"{CELERY_TASK_DEFAULT_QUEUE}ev"
CELERY_CONTROL_EXCHANGE = CELERY_TASK_DEFAULT_QUEUE
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_PUBLISH_RETRY = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SEND_TASK_EVENTS = True
CELERY_TASK_SEND_SENT_EVENT = True
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 10
# Else Celery closes the database's connections around each task, whatever CONN_MAX_AGE says.
CELERY_DB_REUSE_MAX = 1_000_000
CELERY_TIMEZONE = TIME_ZONE

# DURABLEFLOWS_STALE_SECONDS and the like, for a demo that need not wait half a minute for a dead worker.
DURABLEFLOWS: dict[str, object] = {
    name: float(os.environ[f"DURABLEFLOWS_{name}"])
    for name in ("STALE_SECONDS", "LOOKUP_SECONDS", "RESEND_SECONDS")
    if os.environ.get(f"DURABLEFLOWS_{name}")
}
# Where people reach this desk, such as https://desk.example.com: those who may decide are told by mail, with a link.
if os.environ.get("BASE_URL"):
    DURABLEFLOWS |= {"BASE_URL": os.environ["BASE_URL"], "NOTIFIERS": ["durableflows.notifiers.MailNotifier"]}

# Prometheus says it as `Authorization: Bearer`; without one, metrics and health are for people who may operate runs.
DURABLEFLOWS["MONITOR_TOKEN"] = os.environ.get("DURABLEFLOWS_MONITOR_TOKEN", "")

# -- Errors and traces: who follows runs from outside. Its tracer comes with `opentelemetry-instrument`.

WATCHERS: list[str] = []
DURABLEFLOWS["WATCHERS"] = WATCHERS
if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
    WATCHERS.append("durableflows.watchers.opentelemetry.Traces")

SENTRY_DSN = os.environ.get("SENTRY_DSN", "")
if SENTRY_DSN:
    import sentry_sdk

    WATCHERS.append("durableflows.watchers.sentry.Issues")
    # Frames hold card numbers and bodies hold reasons: neither leaves this machine.
    sentry_sdk.init(
        dsn=SENTRY_DSN, include_local_variables=False, send_default_pii=False, max_request_body_size="never"
    )
