"""One cycle, pure: heads and frozen state in; admissions, preemptions and reasons out."""
