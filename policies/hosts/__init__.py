"""
Host facts: NUMA nodes, GPUs and where each fact comes from.

    merge        merge host facts of several sources
    node_object  host facts from a Node's labels and annotation
    topology     NUMA node, GPU and Topology Manager values
"""
