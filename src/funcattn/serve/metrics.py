"""What the service counts, for Prometheus.

With several workers, PROMETHEUS_MULTIPROC_DIR names a folder through which they count together.
"""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """Counts of one worker."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self._registry = own
        self._requests = Counter(
            "funcattn_requests_total", "Requests.", ["route", "method", "status"], registry=own
        )
        self._seconds = Histogram(
            "funcattn_request_seconds",
            "Time to answer.",
            ["route"],
            buckets=_SECONDS,
            registry=own,
        )
        self.together = Histogram(
            "funcattn_batch_questions",
            "Questions that the network answered together.",
            buckets=(1, 2, 4, 8, 16, 32),
            registry=own,
        )
        self.questions = Gauge(
            "funcattn_questions",
            "Questions that are worked on or wait.",
            registry=own,
            multiprocess_mode="livesum",
        )
        self.begun = Gauge(
            "funcattn_begun_requests",
            "Requests that were begun and are not answered.",
            registry=own,
            multiprocess_mode="livesum",
        )
        self.jobs = Counter("funcattn_jobs_total", "Jobs that were started.", registry=own)

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered."""
        method = method if method in ("GET", "POST", "DELETE", "OPTIONS", "HEAD") else "other"
        self._requests.labels(route, method, status).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All counts, in the format of Prometheus."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)
        return generate_latest(together)
