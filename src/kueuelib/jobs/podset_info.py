"""An older path of what `kueuelib.jobs` exports: what admission adds to pod templates."""

from kueuelib.jobs.contract.podset_info import *  # noqa: F403
