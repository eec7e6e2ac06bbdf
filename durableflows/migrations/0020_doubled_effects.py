from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('durableflows', '0019_console_owners'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='sideeffect',
            index=models.Index(condition=models.Q(('contradiction', ''), _negated=True), fields=['provider'], name='durableflows_effect_doubled'),
        ),
    ]
