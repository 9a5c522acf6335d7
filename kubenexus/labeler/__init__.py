"""
`kubenexus labeler`: publish a host's NUMA nodes and GPUs on its Node object.

    cli     options -> run once, or every minute
    sysfs   read /sys: NUMA nodes, distances, GPUs and their PCIe roots
    labels  the same as labels and as one annotation
    sync    patch the Node object when something changed

It runs on every node, reads /sys and writes only the labels and annotation of its own node.
"""
