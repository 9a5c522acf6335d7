"""
`kubenexus labeler`: tells the cluster what a node is like inside.

    sysfs    what the kernel shows under /sys: NUMA nodes, distances, GPUs and their PCIe roots
    facts    the same as one annotation and as labels that an API server takes
    keep     the node's own object, patched when something changed

It runs on every node, reads /sys and writes nothing but its own node's labels and annotation.
"""
