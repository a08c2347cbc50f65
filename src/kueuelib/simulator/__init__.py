"""Runs the scheduler in virtual time: the manager's own decisions about a trace of jobs.

trace = Trace.of(jobs)                      jobs as values, in the order of their arrival
driver = Driver(cluster, record)            the engine, with the facts of a cluster
driver.run(trace)                           calls the record for everything that happens
"""
