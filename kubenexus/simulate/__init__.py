"""
`kubenexus simulate`: admit and place manifests without a cluster.

    command       options -> run
    inputs        files -> a cluster and manifests, or one line that points at the mistake
    validate      whether an API server could decode an object
    apiserver     what the API server does around the webhook: namespaces, priorities, defaults
    controllers   the pods that a workload's controller makes
    place         queue order and the planner, once, on a snapshot in memory
    injected      the fields that admission wrote
    run           the simulation in order
    result        its result as values
    render        the result as text or JSON
    virtual_time  the same with a clock: jobs arrive, run and end

Only the API server and the controllers are imitated, as far as the result depends on them. The
webhook's own code admits, and the scheduler's own code places.
"""
