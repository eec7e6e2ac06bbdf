from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('durableflows', '0021_dashboard'),
    ]

    operations = [
        migrations.AddField(
            model_name='worker',
            name='jobs',
            field=models.JSONField(blank=True, null=True),
        ),
    ]
