"""
cluster.yaml: a cluster described in one file.

    load    cluster.yaml -> Node objects
    schema  pydantic models of cluster.yaml
"""
