"""
Simulation in virtual time: jobs that arrive, run and end.

    run              read, admit, simulate, report, in order
    jobs_csv         jobs.csv -> Job manifests
    engine           drive one strategy on the clock; `make bench-tenancy` runs it too
    strategies       FIFO, greedy, ours
    cluster          nodes, and jobs that arrive, run, are evicted and end
    timeline         jobs and what became of them, as values
    wait_statistics  waits, utilisation, shares
    render           text and JSON
"""
