"""The order of durableflows: a module may import only modules that stand before it. Data for test_layers.py.

Read it downwards to understand the engine from values to pages. A new file gets a line here, below all that it imports
and above all that imports it; where no place fits, the file does two things.
"""

# Values and decisions: standard library and pydantic, neither Django nor a row. Everything else may use them.
PURE = (
    "errors",
    "core",
    "core.wording",
    "core.secrecy",
    "core.payload",
    "core.free_text",
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
    "",  # durableflows/__init__.py: what workflows are declared with
)

# What the project and the process say: settings, time, places where we can die.
SURROUNDINGS = ("conf", "signals", "boundaries", "clock", "wall_time", "fields", "tenants", "classifiers")

ROWS = (
    "models.compiled",
    "models.fields",
    "models.run",
    "models.step",
    "models.effect",
    "models.approval",
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
    "rights",
    "candidates",
    "votes",
    "selectors",
    "given",
    "journal",
    "integrity",
    "broker",
    "dispatch",
    "ledger_facts",
    "providers",
    "ledger",
    "ledger_undo",
    "ledger_together",
    "ledger_answers",
    "model_calls",
    "artifacts",
    "pinned",
    "secrets",
    "notes",
)

# The funnel: nothing else moves a run, a step or an approval.
FUNNEL = ("groups", "visits", "arrivals", "questions", "undo_children", "undoing", "endings", "progress", "reopening")

# One attempt of a step, and asking a provider what became of an effect.
WORK = ("claims", "decisions", "context", "runner", "lookups", "gate")

# One function, one verb, one transaction.
VERBS = (
    "services",
    "services.runs",
    "services.requests",
    "services.approvals",
    "services.expiry",
    "services.given_back",
    "services.reconcile",
    "services.operations",
    "services.limits",
    "services.edit",
    "services.redrive",
    "services.compensate",
    "services.abandon",
    "services.preview",
    "services.signals",
    "services.children",
    "services.migrations",
    "services.provider_events",
    "services.turns",
    "services.unanswerable",
    "services.providers",
    "services.outbox",
    "services.ends",
    "services.sweeps",
    "services.rotation",
    "services.cleanup",
)

# Reads all rows and says what is broken, due, or needs attention. It repairs nothing.
DOCTOR = (
    "doctor.findings",
    "doctor.rows",
    "doctor.due",
    "doctor.undos",
    "doctor.states",
    "doctor.waits",
    "doctor.effects",
    "doctor.budgets",
    "doctor.providers",
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
    *DOCTOR,
    "api",
)

# Celery, Django's admin, pages, commands, and what users' tests are written with.
EDGES = (
    "forms",
    "tasks",
    "webhooks",
    "templatetags",
    "templatetags.durableflows",
    "reading",
    "reading.looking",
    "reading.facts",
    "reading.who",
    "reading.freed",
    "reading.answers",
    "reading.standing",
    "reading.window",
    "reading.inbox",
    "reading.before",
    "reading.progress",
    "reading.deciding",
    "views",
    "views.guard",
    "views.doors",
    "views.badge",
    "views.inbox",
    "views.decision",
    "views.asked",
    "metrics.values",
    "metrics.standing",
    "metrics.lately",
    "metrics.prometheus",
    "metrics",
    "health",
    "views.monitor",
    "urls",
    "admin.frame",
    "admin.lists",
    "admin.readonly",
    "admin.evidence",
    "admin.runs",
    "admin.standing",
    "admin.requests",
    "admin",
    "ticker",
    "checks_celery",
    "checks_effects",
    "checks",
    "celery",
    "apps",
    "testing.crashes",
    "testing.faults",
    "testing.schedules",
    "testing.shrink",
    "testing.world",
    "testing.scenarios",
    "testing.receipts",
    "testing.telling",
    "testing.provider",
    "testing.gateway",
    "testing.sealed",
    "testing.fakes",
    "testing.due",
    "testing.promises",
    "testing.people",
    "testing.work",
    "testing.play",
    "testing.checkpoints",
    "testing.report",
    "testing.drive",
    "testing",
    "pytest_plugin",
    "management",
    "management.databases",
    "management.graph",
    "management.library_tables",
    "management.matrix",
    "management.tables",
    "management.monitors",
    "management.pages",
    "management.plans",
    "management.matrices",
    "management.operators",
    "management.naming",
    "management.faulttests",
    "management.progress",
    "management.readers",
    "management.writers",
    "management.providers",
    "management.upkeep",
    "management.cleanups",
    "management.proofs",
    "management.printed",
    "management.verbs",
    "management.options",
    "management.parsers",
    "management.commands",
    "management.commands.durableflows",
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
NEVER_IN_ENGINE = ("stripe", "httpx", "requests", "urllib3", "redis", "sentry_sdk", "flower")

# The doors of durableflows that a project may use; the last one only in its tests, and in what `faulttest` plays.
PUBLIC = ("", "api", "celery", "errors", "fields", "forms", "models", "signals", "testing", "webhooks")
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
