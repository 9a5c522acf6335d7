"""
Manifests admitted and placed without a cluster, by the code that does it in one.

    command     what the options ask for
    inputs      files --> a cluster and manifests, or one line that says what is wrong where
    shapes      what an object must look like to be decoded at all
    apiserver   what the API server does around the webhook: namespaces, priorities, defaults
    expand      what a workload's controller does: the pods it makes
    place       queue order and the planner, on a snapshot in memory
    changes     what admission wrote, in words
    run         all of it in order
    outcome     what came out, as values
    render      the values as text or JSON

and in virtual time, where work arrives, runs and goes:

    jobsfile    a list of jobs --> manifests
    timed       all of it in order
    virtual     the clock and a way of deciding: what `make bench-tenancy` runs
    world       the cluster: who comes, runs, is evicted, comes back, ends
    ways        who is next: in line, greedy, or as the scheduler does it
    history     what happened, as values
    tally       what that comes to, tenant by tenant
    render_timed   the same as text or JSON

Imitated are only the API server and the controllers, in the few points that matter here; every
verdict is the webhook's and every placement the scheduler's own.
"""
