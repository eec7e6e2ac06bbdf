"""How many requests wait for the person, as a few bytes for the badge in a project's own pages."""

from django.http import HttpRequest, HttpResponse, JsonResponse

from durableflows.reading.standing import count_words, waiting_count
from durableflows.views.doors import Door


class Badge(Door):
    """Answers {"waiting": 3, "words": "3"}; 401 to strangers, whom no script should send to log in."""

    def get(self, request: HttpRequest) -> HttpResponse:
        count = waiting_count(request)
        return JsonResponse({"waiting": count, "words": count_words(count)})

    def send_to_log_in(self) -> HttpResponse:
        return JsonResponse({"error": "log in"}, status=401)
