"""The contract of a kind of jobs: the class that its author writes, optional capabilities, and the
commands of plans. Kinds depend on this package only.
"""
