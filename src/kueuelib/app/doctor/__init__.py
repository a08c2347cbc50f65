"""`kueuelib doctor`: what is wrong with an installation, and the command that fixes it.

    snapshot = await read(client, ...)      what the caller may read of the cluster, read once
    report = examine(snapshot)              pure: every check over that snapshot

A check is a function from a `ClusterSnapshot` to findings, in a module of
`kueuelib.app.doctor.checks`, marked with `@check`. Nothing else has to be changed to add one.
"""
