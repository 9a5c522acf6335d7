"""
The scheduler: pending pods in, plans for complete gangs, bindings out. Upper layers come first.

    app           the process: options, wiring, exit codes
    wiring        construction of every part
    serve         HTTP endpoints, gauges, signals
    watch         reload of policy files and policy objects
    scheduler     watch events in, bindings out
    cycle         the scheduling cycle, without I/O
    actuators     the writers that the scheduler acts through
    explain       why a pod is pending
    bind          from a plan to Bindings
    provisioning  ProvisioningRequests for gangs that lack capacity
    gang          gates, partial gangs, starvation
    tenancy       quota, fair share, preemption, backfill, reservations
    queueing      the scheduling queue
    plan          plans one unit on the snapshot
    cache         assumed and bound pods, the snapshot
    hostinfo      NUMA nodes and GPUs of hosts, from several sources
    plugins       filters and scores
    columns       the columnar node table
    failed_events watch events that are tried again
    isolation     errors that concern one object
    report        Events, conditions, metrics
    options       options and tunables
    background    tasks beside the cycle
    fork          long computations in a forked process
    work_budget   CPU time that a computation may take in the event loop
    feed          a resource to watch, with its store
    model         pods, nodes, gangs, units and plans as values
    errors        the error tree
    bounded       dicts that keep the latest values

`docs/architecture.md` shows the layers and the path of a pod.
"""
