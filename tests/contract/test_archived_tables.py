"""What goes with a run is archived before it: a table that leads to a run stands in the archive's list."""

from django.apps import apps
from django.db.models import ForeignKey, Model

from durableflows.archives import OF_RUN
from durableflows.models import WorkflowRun


def leads_to_a_run(model: type[Model]) -> bool:
    """By its foreign keys, one after the other."""
    if model is WorkflowRun:
        return True
    keys = [field for field in model._meta.concrete_fields if isinstance(field, ForeignKey)]
    targets = {key.related_model for key in keys} - {model}
    return any(_is_ours(one) and leads_to_a_run(one) for one in targets)


def _is_ours(model: type[Model]) -> bool:
    return model._meta.app_label == "durableflows"


def test_each_table_that_leads_to_a_run_is_archived_with_it():
    models = apps.get_app_config("durableflows").get_models(include_auto_created=True)

    assert {model.__name__ for model in models if leads_to_a_run(model)} == {model.__name__ for model, _ in OF_RUN}
