"""
What CEL needs beside an engine: the protocol, Kubernetes' functions, the Pod's types, rewriting.

Imports no engine; `policies.expression` is the one module that does.
"""
