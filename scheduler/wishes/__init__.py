"""
What a pod's spec asks of its place, decoded once into frozen values: part of a pod's `Shape`.

Equal wishes are equal values, so that equal pods share what was found out for one of them. What a
wish means on a given cluster is decided in `scheduler.rules`.
"""
