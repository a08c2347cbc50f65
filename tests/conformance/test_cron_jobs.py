"""Schedules and time zones of CronJobs: what is wrong is a cause of the answer."""

from __future__ import annotations

import pytest

CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
NO_ZONE = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
EXPLICIT = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
NO_INT = 'failed to parse int from {0}: strconv.Atoi: parsing "{0}": invalid syntax'


def cron_job(schedule="@daily", **fields):
    template = {"spec": {"template": {"spec": POD}}}
    return {
        "metadata": {"name": "c"},
        "spec": {"schedule": schedule, "jobTemplate": template, **fields},
    }


def causes(answer, field):
    assert answer.status == 422, answer
    found = answer.body["details"]["causes"]
    assert {each["field"] for each in found} == {field}
    return [each["message"].partition(": ")[2].partition(": ")[2] for each in found]


@pytest.mark.parametrize(
    "schedule",
    [
        *("* * * * *", "? ? ? ? ?", "0-59/2 1,2,3 */3 JAN-mar Mon", "5/100 * * * *", ", +5 * * *"),
        "@yearly",
        "@midnight",
        "@every 1h30m",
        "*/61 * * * *",
        "*-5 * * * *",
    ],
)
async def test_a_schedule_is_accepted(api, schedule):
    assert (await api.post(CRON_JOBS, cron_job(schedule))).status == 201


@pytest.mark.parametrize(
    ("schedule", "whys"),
    [
        ("TZ=UTC 0 0 * * *", [NO_ZONE]),
        ("CRON_TZ=Europe/Berlin @daily", [NO_ZONE]),
        ("TZ=Mars 0 0 * * *", ["provided bad location Mars: unknown time zone Mars", NO_ZONE]),
        ("0 0 * * TZ", [NO_INT.format("TZ"), NO_ZONE]),
        (
            "TZ=UTC",
            ["invalid schedule format: runtime error: slice bounds out of range [:-1]", NO_ZONE],
        ),
        ("* * * * * *", ["expected exactly 5 fields, found 6: [* * * * * *]"]),
        (" ", ["expected exactly 5 fields, found 0: []"]),
        ("a * * * *", [NO_INT.format("a")]),
        ("* * * FOO *", [NO_INT.format("FOO")]),
        ("1- * * * *", [NO_INT.format("")]),
        ("1_0 * * * *", [NO_INT.format("1_0")]),
        ("99 * * * *", ["end of range (99) above maximum (59): 99"]),
        ("1,2,60 * * * *", ["end of range (60) above maximum (59): 60"]),
        ("* * 0 * *", ["beginning of range (0) below minimum (1): 0"]),
        ("5-1 * * * *", ["beginning of range (5) beyond end of range (1): 5-1"]),
        ("1-2-3 * * * *", ["too many hyphens: 1-2-3"]),
        ("1/2/3 * * * *", ["too many slashes: 1/2/3"]),
        ("*/0 * * * *", ["step of range should be a positive number: */0"]),
        ("*/-1 * * * *", ["negative number (-1) not allowed: -1"]),
        ("@Daily", ["unrecognized descriptor: @Daily"]),
        ("@every x", ['failed to parse duration @every x: time: invalid duration "x"']),
    ],
)
async def test_a_schedule_is_refused(api, schedule, whys):
    found = await api.post(CRON_JOBS, cron_job(schedule))
    assert causes(found, "spec.schedule") == whys


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Etc/GMT+1"])
async def test_a_time_zone_is_accepted(api, zone):
    assert (await api.post(CRON_JOBS, cron_job(timeZone=zone))).status == 201


@pytest.mark.parametrize(
    ("zone", "whys"),
    [
        ("", ["timeZone must be nil or non-empty string"]),
        ("Local", [EXPLICIT]),
        ("local", [EXPLICIT, "unknown time zone local"]),
        *(
            (name, [f"unknown time zone {name}"])
            for name in ("Mars", "europe/berlin", "../x", "a//b", "-a", "a" * 15, "é", "GMT+1")
        ),
        ("Europe", ["is a directory"]),
    ],
)
async def test_a_time_zone_is_refused(api, zone, whys):
    await api.post(CRON_JOBS, cron_job())
    for found in (
        await api.post(CRON_JOBS, {**cron_job(timeZone=zone), "metadata": {"name": "d"}}),
        await api.patch(f"{CRON_JOBS}/c", {"spec": {"timeZone": zone}}),
    ):
        assert causes(found, "spec.timeZone") == whys


async def test_all_that_is_wrong_is_told_in_the_order_of_kubernetes(api):
    wrong = cron_job("TZ=UTC 0 0 * * *", timeZone="Mars", concurrencyPolicy="x")
    found = await api.post(CRON_JOBS, wrong)
    fields = [each["field"] for each in found.body["details"]["causes"]]
    assert fields == ["spec.schedule", "spec.timeZone", "spec.concurrencyPolicy"]
