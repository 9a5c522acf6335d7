"""What a node is made of inside: NUMA nodes, GPUs, and who holds which of them."""
