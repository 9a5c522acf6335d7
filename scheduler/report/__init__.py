"""
What users see of the scheduler: Events, conditions, metrics.

    conditions  writes the PodScheduled condition
    events      constructors of Events
    metrics     counters and histograms
    reporter    Events, conditions and log lines of a decision
    steps       CPU time of the steps of the event loop
"""
