"""
Filters and scores over all nodes at once; each plugin is one class with the methods of `protocol`.

    registry           the ordered list of all plugins
    protocol           the methods that a plugin may have
    taint_toleration   cordoned nodes and taints
    node_affinity      node selector, node affinity, declared features
    node_ports         host ports
    node_resources     free amounts; least and balanced use
    image_locality     images that need not be pulled
    placement_policy   tenant tiers, fabric and VRAM by the policies in force
    tenant_tiers       reserved nodes, allowed and preferred hardware
    fabric             topology levels and the quality of the network
    gpu_classes        tier and VRAM of each node's GPUs
    interpod           topology spread, pod affinity and anti-affinity
    volumes            claims, disks, their zones and limits
    dra                claims of devices (Dynamic Resource Allocation)
    numa               NUMA nodes and GPUs inside hosts
"""
