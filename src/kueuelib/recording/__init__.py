"""What the decision engine was told, when, and what it decided: written down, and run again.

tape = Tape()                              lines of JSON, in memory until somebody takes them
engine = RecordedEngine(settings, tape)    an engine that writes down everything it is told
rerun(lines, engine)                       tells another engine the same, and compares its plans
"""
