"""Commands and their options, by family; nothing heavy is imported before it is needed."""
