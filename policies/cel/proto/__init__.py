"""
Protobuf messages: the .proto file, and the module that `make generate` writes from it.

    checked_expr_pb2   CheckedExpr: the tree of a checked CEL expression
"""
