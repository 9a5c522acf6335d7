"""
What CEL needs beside an engine: the protocol, Kubernetes' functions, the Pod's types, rewriting.

Imports no engine; `policies.cel.engine_cpp` is the one module that does.
"""
