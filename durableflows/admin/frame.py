"""The frame that the engine's pages stand in: stock admin or django-unfold, and what each may run in a browser.

Owns the content security policy of our pages in the admin (R28). Whether unfold is installed is read from the settings;
it is never imported.
"""

from django.apps import apps
from django.http import HttpResponse

from durableflows.views import guard

# unfold's menus and theme switch are expressions in attributes, which Alpine compiles: that is 'unsafe-eval'. Its
# colours are a <style> whose text follows the project's settings: that is 'unsafe-inline', for styles alone. Inline
# scripts and event handlers stay forbidden, and text of ours never stands where Alpine reads (it reads no {{ }}).
UNFOLD = "; script-src 'self' 'unsafe-eval'{files}; style-src 'self' 'unsafe-inline'{files}"


def guarded(response: HttpResponse) -> HttpResponse:
    """Forbid inline scripts on a page of ours, whatever text it shows."""
    return guard.guarded(response, guard.ALWAYS + UNFOLD if apps.is_installed("unfold") else guard.ALWAYS)
