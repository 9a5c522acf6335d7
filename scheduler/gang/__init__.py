"""
Gangs beyond planning: PodGroup objects, gates, partial gangs, starvation.

    gates                remove the gang scheduling gate (PATCH)
    partial_gangs        tracker of partially bound gangs
    pod_groups           PodGroup objects by gang, watched
    recovery             when partial gangs are released and nodes held
    stale_gang_eviction  evict members of a gang that stays partial (KAI's word)
    starvation           nodes held for a starving gang
"""
