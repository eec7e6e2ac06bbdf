from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):

    dependencies = [
        ('customer_ops', '0006_addresses_that_take_no_mail'),
    ]

    operations = [
        migrations.AddField(
            model_name='refundrequest',
            name='asked_for_minor',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='refundrequest',
            name='asked_for_currency',
            field=models.CharField(blank=True, max_length=3, null=True),
        ),
        migrations.AddConstraint(
            model_name='refundrequest',
            constraint=models.CheckConstraint(
                condition=Q(asked_for_minor__isnull=True, asked_for_currency__isnull=True)
                | Q(asked_for_minor__gt=F('amount_minor'), asked_for_currency=F('amount_currency')),
                name='customer_ops_refund_less',
            ),
        ),
    ]
