"""An index that finds runs by a label, for the console. PostgreSQL alone has its kind, so that the model does not name it."""

from django.db import migrations

CREATE = (
    "CREATE INDEX IF NOT EXISTS durableflows_run_labels ON durableflows_workflowrun USING gin (labels jsonb_path_ops)"
)
DROP = "DROP INDEX IF EXISTS durableflows_run_labels"


def create(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(CREATE)


def drop(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(DROP)


class Migration(migrations.Migration):

    dependencies = [("durableflows", "0023_requests_without_what_links_keep")]

    operations = [migrations.RunPython(create, drop)]
