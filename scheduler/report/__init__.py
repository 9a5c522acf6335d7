"""
What users see of the scheduler: Events, conditions, metrics.

    conditions  writes the PodScheduled condition
    events      constructors of Events
    metrics     counters and histograms
    reporter    Events, conditions and log lines of a decision
"""
