"""A worker process as the database knows it: one row a start, kept alive by its ticker."""

from typing import ClassVar

from django.db import models
from django.db.models import Q


class Worker(models.Model):
    """`boot_id` names one start of one worker; leases carry it."""

    boot_id = models.UUIDField(primary_key=True)
    name = models.CharField(max_length=200)
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    queues = models.JSONField(default=list)
    knows = models.JSONField(default=list)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    swept_at = models.DateTimeField(null=True, blank=True)
    # Told to end, or to take no new step: it ends those that it holds.
    draining_at = models.DateTimeField(null=True, blank=True)
    # When its ticker last did each periodic job: name -> {"at", "error"}. Written and read by `housekeeping`. None: a
    # worker of the release before, which starts beside newer ones.
    jobs = models.JSONField(null=True, blank=True)
    stopped_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "durableflows"
        ordering: ClassVar = ["-started_at"]
        indexes: ClassVar = [
            models.Index(
                fields=["heartbeat_at"], condition=Q(stopped_at__isnull=True), name="durableflows_worker_beat"
            ),
        ]

    def __str__(self) -> str:
        return self.name
