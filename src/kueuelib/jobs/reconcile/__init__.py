"""What is done about one job: a pure plan of commands, and what carries it out."""
