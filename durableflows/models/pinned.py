"""A prompt or policy that runs have pinned, once for all of them."""

from typing import ClassVar

from django.db import models


class PinnedContent(models.Model):
    """What has this digest. Never changed: a changed prompt has another one."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    content = models.JSONField()
    created_at = models.DateTimeField()

    class Meta:
        app_label = "durableflows"
        verbose_name = "pinned content"
        ordering: ClassVar = ["created_at", "sha256"]

    def __str__(self) -> str:
        return self.sha256
