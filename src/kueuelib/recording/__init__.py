"""The input and the decisions of the engine: recorded, and run again.

tape = Tape()                              lines of JSON, in memory until they are taken
engine = RecordedEngine(settings, tape)    an engine that records all its input
rerun(lines, engine)                       runs another engine on it, and compares its plans
"""
