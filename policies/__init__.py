"""
The bottom layer: label and annotation keys, pod intent, policy documents and their evaluation.

    vocabulary    every label, annotation, gate and name, once
    json_fields   raw JSON objects, read without trust
    quantity      Kubernetes quantities, exact
    duration      Go-style durations
    bounds        longest text and largest value of what users write
    text          counted nouns, bounded lists, timestamps
    cel           CEL engines, functions and types
    pods          what pods and workloads request
    hosts         NUMA nodes and GPUs of a host
    documents     policy documents and what is generated from them
    engine        policies compiled and evaluated
    checks        built-in checks of admission
    library       the policies that ship with the product (YAML)

It imports no other package, makes no calls to a cluster, and has no clock of its own.
"""
