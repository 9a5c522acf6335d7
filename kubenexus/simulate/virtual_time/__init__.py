"""
Simulation in virtual time: jobs that arrive, run and end.

    cluster          cluster in virtual time
    engine           drive one strategy on the clock
    jobs_csv         jobs.csv -> manifests
    render           text and JSON
    run              simulation in virtual time
    strategies       FIFO, greedy, ours
    timeline         what happened, as values
    wait_statistics  waits, utilisation, shares
"""
