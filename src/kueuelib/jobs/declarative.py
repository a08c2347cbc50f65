"""An older path of what `kueuelib.jobs` exports: kinds that are declared by paths."""

from kueuelib.jobs.declared.declarative import *  # noqa: F403
