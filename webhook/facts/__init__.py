"""
Cluster facts that a decision needs: namespaces, owners, Kueue queues.

    cluster_facts  look up facts a decision needs (`ClusterWorld` -> `ClusterFacts`)
    kueue_queues   watched LocalQueues and ClusterQueues
    queue_lookup   which Kueue queue a workload is in
"""
