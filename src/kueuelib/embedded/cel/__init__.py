"""The Common Expression Language as Kubernetes speaks it: typed, bounded, without side effects.

`program.compile_expression` turns text into a `Program`, `program.Program.run` evaluates it.
Nothing here is imported before a schema or a webhook carries an expression.
"""
