"""An older path of what `kueuelib.jobs` exports: `GenericJob` and its values."""

from kueuelib.jobs.contract.generic_job import *  # noqa: F403
