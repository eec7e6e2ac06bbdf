"""All parts of the demo at once, in the order that they need each other: what can start side by side does."""

from customer_ops.demo import flower, processes
from customer_ops.demo.place import Place
from customer_ops.demo.processes import Child


def start(place: Place, children: list[Child], *, password: str) -> Child:
    """Start every part, on a database that is migrated and seeded. Returns the worker."""
    outside = [processes.begin_sandbox(place, children), processes.begin_mailbox(place, children)]
    processes.manage(place, "migrate", "--verbosity=0")
    for child in outside:
        child.wait_until_ready()
    processes.manage(place, "seed_demo", f"--password={password}")
    inside = [processes.begin_worker(place, children), processes.begin_web(place, children)]
    if flower.is_installed():
        flower.start(place, children, password=password)  # not waited for: nothing depends on it
    for child in inside:
        child.wait_until_ready()
    return inside[0]
