"""
Inter-pod affinity and topology spread.

    affinity         InterPodAffinity
    default_spread   default spread constraints by Service and controller
    existing_terms   affinity terms of the pods on rows
    informers        namespaces, services, controllers to watch
    plugin           the plugin: affinity and spread
    pod_counts       pods per row, by selector
    selector_index   which selectors in use match a pod
    topology_spread  PodTopologySpread
"""
