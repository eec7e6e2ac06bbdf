"""What Flower shows of the stories, by its API: each step under its own name, ids alone, and only after a log-in."""

import ast
import re
from typing import Any

import httpx

from customer_ops.demo import flower
from customer_ops.demo.stage import Stage, StoryFailed
from customer_ops.models import Customer
from durableflows.models import StepRun

STEPS = ("assess", "sign_off", "pay", "settle", "turn_down", "tell_customer")
ERROR = re.compile(r"^(\[E |Traceback|.*\bERROR\b)", re.MULTILINE)

Tasks = dict[str, dict[str, Any]]


def look(stage: Stage, *, password: str) -> str:
    """Read Flower as its users do. Raises StoryFailed for a step that is missing, or for more than ids."""
    child = next((child for child in stage.children if child.is_observer), None)
    if child is None:
        raise StoryFailed("Flower is not installed: pip install -r requirements.txt")
    _refuse_strangers(stage)
    with httpx.Client(base_url=stage.place.flower_url, auth=(flower.NAME, password), trust_env=False) as client:
        tasks = stage.wait(lambda: _all_steps(client), what="Flower to list each step")
    find_only_ids(tasks)
    if not child.is_alive:
        raise StoryFailed(child.ending())
    if found := ERROR.findall(child.output()):
        raise StoryFailed(f"{len(found)} errors in {child.log}")
    return f"{len(tasks)} step tasks by name, with ids alone; without log-in 401"


def _refuse_strangers(stage: Stage) -> None:
    for path in ("/", "/tasks", "/api/tasks", "/api/workers"):
        code = httpx.get(f"{stage.place.flower_url}{path}", trust_env=False).status_code
        if code != 401:
            raise StoryFailed(f"Flower answers {path} without log-in with {code}")


def _all_steps(client: httpx.Client) -> Tasks | None:
    """Every task that Flower knows, once each step that the stories go through is among them."""
    tasks: Tasks = client.get("/api/tasks", params={"limit": 10_000}).raise_for_status().json()
    seen = {task["name"] for task in tasks.values()}
    return tasks if {f"refund.{step}" for step in STEPS} <= seen else None


def find_only_ids(tasks: Tasks) -> None:
    """Raise StoryFailed when a step's task holds anything but a run and its step, or Flower shows a customer."""
    steps = {str(step): str(run) for step, run in StepRun.objects.values_list("pk", "run_id")}
    for task in tasks.values():
        if not str(task["name"]).startswith("refund."):
            continue
        run, step = ast.literal_eval(task["args"])
        if steps.get(step) != run or task["kwargs"] != "{}":
            raise StoryFailed(f"{task['name']} has the arguments {task['args']} {task['kwargs']}, not a run and a step")
    shown = str(tasks)
    for email, name in Customer.objects.values_list("email", "name"):
        if email in shown or name in shown:
            raise StoryFailed(f"Flower shows {name}, a customer")
