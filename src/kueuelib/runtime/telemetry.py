"""Prometheus metrics under the names that dashboards expect.

Every `Telemetry` has a registry of its own unless it is given one, so that two managers, or two
tests, do not interfere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

import attrs
from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kueuelib.errors import ConfigError

QUEUE_BUCKETS = tuple(10.0**exponent for exponent in range(-8, 4))
RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8),
    *(0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0),
    *(15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)
REST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 45.0, 60.0)
SIZE_BUCKETS = (
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262144.0,
    1048576.0,
    4194304.0,
)
MAX_PRIORITIES = 25
"""Distinct priorities of one queue that get a label of their own."""
RESULTS = ("success", "error", "requeue", "requeue_after")

MoreLabels = Callable[[str, Mapping[str, str]], Mapping[str, str]]
"""From the name and labels of a series to the labels that it has in addition."""


@attrs.frozen
class QueueSample:
    """What a work queue looks like now, for a scrape.

    Attributes:
        depth: ready keys by priority.
        adds: keys that became ready so far.
        retries: delayed adds so far.
        unfinished: seconds that running workers have spent together.
        longest: seconds that the longest running worker has spent.
    """

    depth: Mapping[int, int]
    adds: int
    retries: int
    unfinished: float
    longest: float


@attrs.frozen
class QueueTimes:
    """Where a queue reports durations, in seconds."""

    waited: Callable[[float], None]
    worked: Callable[[float], None]


@attrs.frozen
class ControllerMetrics:
    """What a controller reports."""

    results: Mapping[str, Counter]
    errors: Counter
    terminal_errors: Counter
    panics: Counter
    timeouts: Counter
    seconds: Histogram
    active_workers: Gauge


class Telemetry:
    """All metrics of one process, or of one test.

    `counter`, `gauge` and `histogram` return prometheus_client's own objects; asking twice for the
    same name returns the same one.

    Args:
        registry: where the metrics are registered, for example `prometheus_client.REGISTRY`. Pass
            it if your program serves its metrics itself, or has metrics of its own to be served
            with these. Use one `Telemetry` per registry. If None, it creates its own.

    Attributes:
        registry: the registry with all metrics.
        more_labels: called for every series at every scrape, so that a changed result leaves no
            series behind.

    Raises:
        ConfigError: the registry already has metrics of these names.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry(auto_describe=False) if registry is None else registry
        self.more_labels: MoreLabels = lambda _name, _labels: {}
        self._made: dict[str, Counter | Gauge | Histogram] = {}
        self._queues: dict[str, Callable[[], QueueSample]] = {}
        try:
            self.rest = RestMetrics(self)
        except ValueError as error:
            raise ConfigError(
                "registry",
                "has the metrics of another Telemetry",
                "hand the same Telemetry to all parts",
            ) from error
        self.registry.register(_Queues(self._queues))

    def counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
        """A counter; its name ends in `_total`."""
        made = self._made.get(name)
        if made is None:
            made = Counter(name, documentation, labels, registry=self.registry)
            self._made[name] = made
        assert isinstance(made, Counter)
        return made

    def gauge(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Gauge:
        """A gauge."""
        made = self._made.get(name)
        if made is None:
            made = Gauge(name, documentation, labels, registry=self.registry)
            self._made[name] = made
        assert isinstance(made, Gauge)
        return made

    def histogram(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = Histogram.DEFAULT_BUCKETS,
    ) -> Histogram:
        """A histogram with classic buckets."""
        made = self._made.get(name)
        if made is None:
            made = Histogram(name, documentation, labels, registry=self.registry, buckets=buckets)
            self._made[name] = made
        assert isinstance(made, Histogram)
        return made

    def sampled(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        read: Callable[[], Mapping[tuple[str, ...], float]],
    ) -> None:
        """A gauge whose series are read at every scrape: values by labels."""
        self.registry.register(Sampled([(name, documentation, labels)], lambda: {name: read()}))

    def render(self) -> bytes:
        """Everything in the text format, without the `_created` series."""
        return generate_latest(_Shown(self.registry, self.more_labels))

    def add_queue(self, name: str, sample: Callable[[], QueueSample]) -> QueueTimes:
        """Report a work queue; `sample` is called at each scrape."""
        self._queues[name] = sample
        labels = ("name", "controller")
        waited = self.histogram(
            "workqueue_queue_duration_seconds",
            "How long a key stays in the queue before it is worked on.",
            labels,
            QUEUE_BUCKETS,
        )
        worked = self.histogram(
            "workqueue_work_duration_seconds",
            "How long working on a key takes.",
            labels,
            QUEUE_BUCKETS,
        )
        return QueueTimes(
            waited.labels(name, name).observe,
            worked.labels(name, name).observe,
        )

    def controller(self, name: str, workers: int) -> ControllerMetrics:
        """The metrics of a controller, all results starting at zero."""
        prefix, own = "controller_runtime_reconcile", ("controller",)
        total = self.counter(
            f"{prefix}_total", "Reconciliations by result.", ("controller", "result")
        )
        limit = self.gauge("controller_runtime_max_concurrent_reconciles", "Workers.", own)
        limit.labels(name).set(workers)
        return ControllerMetrics(
            results={result: total.labels(name, result) for result in RESULTS},
            errors=self.counter(
                f"{prefix}_errors_total", "Reconciliations that failed.", own
            ).labels(name),
            terminal_errors=self.counter(
                "controller_runtime_terminal_reconcile_errors_total",
                "Reconciliations that failed and are not retried.",
                own,
            ).labels(name),
            panics=self.counter(
                f"{prefix}_panics_total", "Reconciliations that failed unexpectedly.", own
            ).labels(name),
            timeouts=self.counter(
                f"{prefix}_timeouts_total", "Reconciliations that took too long.", own
            ).labels(name),
            seconds=self.histogram(
                f"{prefix}_time_seconds", "How long one takes.", own, RECONCILE_BUCKETS
            ).labels(name),
            active_workers=self.gauge(
                "controller_runtime_active_workers", "Workers that work.", own
            ).labels(name),
        )


class RestMetrics:
    """Calls to the API server; a `Transport`'s observer."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._answers: dict[tuple[str, str, str, str], tuple[Callable[..., None], ...]] = {}
        self._waits: dict[tuple[str, str], Callable[[float], None]] = {}
        self._requests = telemetry.counter(
            "rest_client_requests_total", "Calls by answer.", ("code", "method", "host")
        )
        self._seconds = telemetry.histogram(
            "rest_client_request_duration_seconds",
            "How long a call takes.",
            ("verb", "host"),
            REST_BUCKETS,
        )
        self._sent = telemetry.histogram(
            "rest_client_request_size_bytes", "Bodies sent.", ("verb", "host"), SIZE_BUCKETS
        )
        self._received = telemetry.histogram(
            "rest_client_response_size_bytes", "Bodies received.", ("verb", "host"), SIZE_BUCKETS
        )
        self._retries = telemetry.counter(
            "rest_client_request_retries_total", "Calls sent again.", ("code", "verb", "host")
        )
        self._throttled = telemetry.histogram(
            "rest_client_rate_limiter_duration_seconds",
            "How long a call waits for its turn.",
            ("verb", "host"),
            REST_BUCKETS,
        )

    def answered(
        self, verb: str, method: str, code: str, host: str, seconds: float, sent: int, received: int
    ) -> None:
        """One call ended."""
        series = self._answers.get((verb, method, code, host))
        if series is None:
            series = self._answers[verb, method, code, host] = (
                self._requests.labels(code, method, host).inc,
                self._seconds.labels(verb, host).observe,
                self._sent.labels(verb, host).observe,
                self._received.labels(verb, host).observe,
            )
        count, took, sends, receives = series
        count()
        took(seconds)
        sends(sent)
        receives(received)

    def retried(self, verb: str, code: str, host: str) -> None:
        """One call is about to be sent again."""
        self._retries.labels(code, verb, host).inc()

    def throttled(self, verb: str, host: str, seconds: float) -> None:
        """One call waited for its turn."""
        wait = self._waits.get((verb, host))
        if wait is None:
            wait = self._waits[verb, host] = self._throttled.labels(verb, host).observe
        wait(seconds)


@cache
def process_telemetry() -> Telemetry:
    """The metrics of an operator, beside what its author registers with prometheus_client.

    There is one for each process, because the names of a registry are unique.
    """
    return Telemetry(REGISTRY)


class _Queues:
    """Reads every queue at the moment of the scrape."""

    def __init__(self, queues: Mapping[str, Callable[[], QueueSample]]) -> None:
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        labels = ["name", "controller"]
        depth = GaugeMetricFamily("workqueue_depth", "Ready keys.", labels=[*labels, "priority"])
        adds = CounterMetricFamily("workqueue_adds", "Keys that became ready.", labels=labels)
        retries = CounterMetricFamily("workqueue_retries", "Delayed adds.", labels=labels)
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds", "Seconds spent on running work.", labels=labels
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds", "The longest of them.", labels=labels
        )
        for name, read in self._queues.items():
            sample, own = read(), [name, name]
            for priority, count in _few(sample.depth).items():
                depth.add_metric([*own, priority], count)
            adds.add_metric(own, sample.adds)
            retries.add_metric(own, sample.retries)
            unfinished.add_metric(own, sample.unfinished)
            longest.add_metric(own, sample.longest)
        yield from (depth, adds, retries, unfinished, longest)


def _few(depth: Mapping[int, int]) -> dict[str, int]:
    """Depth by label; priorities beyond the first ones share a label."""
    by_label = {"0": depth.get(0, 0)}
    for priority, count in sorted(depth.items(), key=lambda pair: -abs(pair[1])):
        label = str(priority) if len(by_label) < MAX_PRIORITIES else "exceeded_cardinality_limit"
        if priority:
            by_label[label] = by_label.get(label, 0) + count
    return by_label


@attrs.frozen(eq=False)
class Sampled:
    """Gauges whose series are read at once at every scrape, for a registry.

    Args:
        gauges: name, documentation and labels of each.
        read: values by name and labels; those of other gauges are left out.
    """

    _gauges: Sequence[tuple[str, str, Sequence[str]]]
    _read: Callable[[], Mapping[str, Mapping[tuple[str, ...], float]]]

    def collect(self) -> Iterator[Metric]:
        """What a registry calls at a scrape."""
        values = self._read()
        for name, documentation, labels in self._gauges:
            family = GaugeMetricFamily(name, documentation, labels=labels)
            for series, value in values.get(name, {}).items():
                family.add_metric(series, value)
            yield family


class _Shown:
    """A registry in the form of a scrape: without samples named `..._created`, with more labels."""

    def __init__(self, registry: CollectorRegistry, more_labels: MoreLabels) -> None:
        self._registry = registry
        self._more_labels = more_labels

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [
                sample._replace(
                    labels={**sample.labels, **self._more_labels(metric.name, sample.labels)}
                )
                for sample in metric.samples
                if not sample.name.endswith("_created")
            ]
            if metric.samples:
                yield metric


# Measures how late the event loop is, for example because a handler or reconciler blocks it.

PERIOD = 0.1
"""Seconds between two measurements."""
_LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """Measures the lateness of timers; a part of a `Manager`.

    `kueuelib_loop_lag_seconds` counts the measurements in buckets.

    Args:
        telemetry: where to report.
        period: seconds between two measurements.
    """

    def __init__(self, telemetry: Telemetry, *, period: float = PERIOD) -> None:
        self._period = period
        self._lags = telemetry.histogram(
            "kueuelib_loop_lag_seconds", "How late the event loop ran timers.", buckets=_LAGS
        )

    async def run(self, ready: Callable[[], None]) -> None:
        """Measure until cancelled."""
        ready()
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._period
            await asyncio.sleep(self._period)
            self._lags.observe(max(loop.time() - due, 0.0))
