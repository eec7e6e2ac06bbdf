"""The order of durableflows: a module may import only modules that stand before it. Data for test_layers.py.

Read it downwards to understand the engine from values to pages. A new file gets a line here, below all that it imports
and above all that imports it; where no place fits, the file does two things.
"""

from tests.contract.layers_of_edges import EDGES

# Values and decisions: standard library and pydantic, neither Django nor a row. Everything else may use them.
PURE = (
    "errors",
    "core",
    "core.wording",
    "core.secrecy",
    "core.payload",
    "core.disguise",
    "core.free_text",
    "core.log_lines",
    "core.cells",
    "core.keys",
    "core.currencies",
    "core.money",
    "core.shape",
    "core.approvers",
    "core.until",
    "core.approval",
    "core.edits",
    "core.pins",
    "core.state",
    "core.states",
    "core.ending",
    "core.merge",
    "core.migrations",
    "core.refs",
    "core.references",
    "core.ways",
    "core.directives",
    "core.effects",
    "core.arguments",
    "core.definition",
    "core.undo",
    "core.run",
    "core.fingerprint",
    "core.registry",
    "core.returned",
    "core.named",
    "core.check_approval",
    "core.check",
    "core.declare",
    "core.outcomes",
    "core.breaker",
    "core.rates",
    "core.run_links",
    "core.changes",
    "core.fold",
    "core.events",
    "core.reconcile",
    "core.retry_after",
    "core.backoff",
    "core.budget",
    "core.operate",
    "core.classify",
    "core.http_answers",
    "core.raised",
    "core.phases",
    "core.libraries",
    "core.plan",
    "core.decide",
    "core.standing",
    "core.notices",
    "core.layout",
    "",  # durableflows/__init__.py: what workflows are declared with
)

# What the project and the process say: settings, time, places where we can die.
SURROUNDINGS = (
    *("conf", "signals", "boundaries", "clock", "wall_time", "fields", "tenants", "classifiers"),
    *("at_work", "logs", "draining"),
)

ROWS = (
    "models.compiled",
    "models.together",
    "models.fields",
    "models.run",
    "models.step",
    "models.effect",
    "models.approval",
    "models.look",
    "models.person",
    "models.notice",
    "models.signal",
    "models.artifact",
    "models.event",
    "models.worker",
    "models.model_call",
    "models.pinned",
    "models.breaker",
    "models",
    "models.locks",
)

# One writer each: a table, or the broker, is written by one of these alone.
WRITERS = (
    "transactions",
    "leases",
    "watching",
    "accounts",
    "delegations",
    "rights",
    "candidates",
    "votes",
    "selectors",
    "recipients",
    "given",
    "journal",
    "alerts",
    "integrity",
    "broker",
    "dispatch",
    "ledger_facts",
    "provider_state",
    "providers",
    "ledger",
    "ledger_undo",
    "ledger_together",
    "ledger_answers",
    "model_calls",
    "artifacts",
    "archives",
    "pinned",
    "secrets",
    "notes",
    "announcements",
    "links",
)

# The funnel: nothing else moves a run, a step or an approval.
FUNNEL = ("groups", "visits", "arrivals", "questions", "undo_children", "undoing", "endings", "progress", "reopening")

# One attempt of a step, and asking a provider what became of an effect.
WORK = ("releases", "claims", "decisions", "context", "runner", "lookups", "gate")

# One function, one verb, one transaction.
VERBS = (
    "services",
    "services.runs",
    "services.requests",
    "services.approvals",
    "services.expiry",
    "services.looks",
    "services.loud",
    "services.people",
    "services.delegating",
    "services.given_back",
    "services.reconcile",
    "services.operations",
    "services.limits",
    "services.edit",
    "services.redrive",
    "services.compensate",
    "services.abandon",
    "services.signals",
    "services.children",
    "services.migrations",
    "services.preview",
    "services.provider_events",
    "services.turns",
    "services.unanswerable",
    "services.providers",
    "services.outbox",
    "services.notices",
    "services.ends",
    "services.sweeps",
    "services.rotation",
    "services.cleanup",
    "housekeeping",
)

# Reads all rows and says what is broken, due, or needs attention. It repairs nothing.
DOCTOR = (
    "doctor.findings",
    "doctor.rows",
    "doctor.counts",
    "doctor.due",
    "doctor.undos",
    "doctor.states",
    "doctor.waits",
    "doctor.effects",
    "doctor.budgets",
    "doctor.providers",
    "doctor.notices",
    "doctor.jobs",
    "doctor.chains",
    "doctor.seals",
    "doctor.given",
    "doctor.pins",
    "doctor.answers",
    "doctor.history",
    "doctor.verification",
    "doctor",
)

# What people and programs ask the engine.
DOORS = (
    "explain_words",
    "explain_events",
    "explain_rows",
    "explain_standing",
    "explain_next",
    "explain",
    "exports",
    *DOCTOR,
    "api",
)

LAYERS = {
    "PURE": PURE,
    "SURROUNDINGS": SURROUNDINGS,
    "ROWS": ROWS,
    "WRITERS": WRITERS,
    "FUNNEL": FUNNEL,
    "WORK": WORK,
    "VERBS": VERBS,
    "DOORS": DOORS,
    "EDGES": EDGES,
}

# The broker is reached through these; everything else must work, and be tested, without Celery.
MAY_IMPORT_CELERY = ("broker", "dispatch", *EDGES)

# The engine knows no provider and no transport; the broker's client belongs to Celery.
NEVER_IN_ENGINE = ("stripe", "httpx", "requests", "urllib3", "redis", "flower")

# Extras: each in the one module that a project names when it wants it.
ONLY_IN = {
    "sentry_sdk": ("watchers.sentry", "watchers.lost_workers"),
    "opentelemetry": ("watchers.opentelemetry",),
}

# The doors of durableflows that a project may use; the last one only in its tests, and in what `faulttest` plays.
PUBLIC = (
    *("", "admin", "api", "celery", "errors", "fields", "forms", "models"),
    *("notifiers", "signals", "testing", "webhooks"),
)
FOR_TESTS_ONLY = ("testing",)
TESTS_OF_PROJECT = ("customer_ops.faulttests",)

# The modules of a project that set Celery up; the rest of it reaches workers by the verbs of `api`.
SETS_CELERY_UP = ("customer_ops.celery", "customer_ops.settings")

# Of `stripe` only its client, which is told the key and not to retry; `stripe.Charge.create` does both by itself.
STRIPE_ALLOWED = (
    "HTTPClient",
    "ListObject",
    "RequestsClient",
    "StripeClient",
    "StripeObject",
    "enable_telemetry",
    "max_network_retries",
    "params",
)
