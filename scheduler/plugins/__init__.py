"""
Kube-scheduler's filters and scores over all nodes at once, one module for each family.

    nodes      node selector and affinity                  the node's own facts
    ports      host ports                                  who is on the node
    volumes    claims, disks, their zones and limits       what is mounted where
    peers      pod (anti-)affinity, topology spread        who is in the node's domain

A family that depends on other pods keeps books: `take(pod, row)` and `give(pod, row)`, exact
opposites, called for every pod that is charged, placed, tried and taken back.
"""
