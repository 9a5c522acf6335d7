"""
Gangs beyond planning: PodGroup objects, gates, partial gangs, starvation.

    gates                removes the gang scheduling gate (PATCH)
    partial_gangs        tracks partially bound gangs
    pod_groups           PodGroup objects by gang, watched
    recovery             when partial gangs are evicted and when nodes are held
    stale_gang_eviction  evicts the members of a gang that stays partial
    starvation           nodes held for a starving gang
"""
