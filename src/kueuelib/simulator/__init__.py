"""Virtual time over the scheduler: the manager's own decisions about a trace of jobs.

trace = Trace.of(jobs)                      jobs as values, in the order of their arrival
driver = Driver(cluster, record)            the engine, told what a cluster would tell it
driver.run(trace)                           calls the record for everything that happens
"""
