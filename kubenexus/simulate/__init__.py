"""
Manifests admitted and placed without a cluster, by the code that does it in one.

    inputs      files --> a cluster and manifests, or one line that says what is wrong where
    shapes      what an object must look like to be decoded at all
    apiserver   what the API server does around the webhook: namespaces, priorities, defaults
    expand      what a workload's controller does: the pods it makes
    place       queue order and the planner, on a snapshot in memory
    changes     what admission wrote, in words
    run         all of it in order
    outcome     what came out, as values
    render      the values as text or JSON
    virtual     work that comes and goes, in virtual time: what `make bench-tenancy` runs

Imitated are only the API server and the controllers, in the few points that matter here; every
verdict is the webhook's and every placement the scheduler's own.
"""
