"""An older path of what `kueuelib.jobs` exports: what a kind can do beyond `GenericJob`."""

from kueuelib.jobs.contract.capabilities import *  # noqa: F403
