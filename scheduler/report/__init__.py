"""
What users see: Events, conditions, metrics.

    conditions  PodScheduled condition writer
    events      Event constructors; takes plain values, not tenancy objects
    metrics     counters and histograms
    reporter    Events, conditions and log line of a decision
"""
