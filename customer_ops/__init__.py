"""The domain app, and the Django project around it: refunds, tickets, mails and customer records.

Importing the package needs no settings: the payment sandbox runs from it as a plain process. The Celery app is
`customer_ops.celery.app`, which `celery -A customer_ops worker` finds.
"""
