"""One cycle, as a pure function: from heads and frozen state to admissions, preemptions and
reasons.
"""
