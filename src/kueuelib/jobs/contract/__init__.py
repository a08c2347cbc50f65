"""What a kind of jobs is: the class that its author writes, what it can do beyond that, and what is
done about it, as values. Kinds are written against this room alone.
"""
