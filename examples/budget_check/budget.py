"""A weekly budget per namespace: what was consumed, from Prometheus, plus what is under way."""

import aiohttp

from kueuelib.checks import Ready, Rejected, Retry, Verdict, Workload, check, current, usage_of
from kueuelib.runtime import Obj, Resource, is_true

BUDGETS = Resource("finance.example.com", "v1", "budgets", "Budget", namespaced=True)


def cost(workload: Workload, prices: dict[str, float]) -> float:
    """The price per hour of a workload's quota, times the hours that it usually takes."""
    used = usage_of(workload)
    return sum(used[name].milli() / 1000 * prices.get(name, 0) for name in used) * prices["hours"]


async def consumed(url: str, query: str) -> float:
    """The number that a Prometheus query gives; 0 when nothing was recorded."""
    async with aiohttp.request("GET", url, params={"query": query}, raise_for_status=True) as http:
        samples = (await http.json())["data"]["result"]
    return float(samples[0]["value"][1]) if samples else 0.0


@check("finance.example.com/budget", parameters=BUDGETS, recheck=5, serialize=lambda w: w.namespace)
async def budget(workload: Workload, parameters: Obj) -> Verdict:
    """Ready while the week's budget of the namespace lasts."""
    spec = parameters["spec"]
    limit, mine = spec["weekly"], cost(workload, spec["prices"])
    if mine > limit:
        return Rejected(f"costs {mine:g}, more than a week's budget of {limit:g}")
    spent = await consumed(f"{spec['prometheus']}/api/v1/query", spec["query"])
    if not spent >= 0:  # NaN is neither below nor above anything: keep waiting
        raise ValueError(f"Prometheus says that {spent:g} was spent")
    others = sum(cost(other, spec["prices"]) for other in current().passed(workload.namespace))
    planned = 0 if is_true(workload, "Admitted") else others + mine
    if spent + planned > limit:
        return Retry(f"{spent:g} of {limit:g} spent, {others:g} under way, {mine:g} needed")
    return Ready(f"costs {mine:g}, {limit - spent - planned:g} left this week")
