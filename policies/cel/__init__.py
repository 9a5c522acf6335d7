"""
CEL behind one small protocol: engines, the functions and types that policies use, tree rewriting.

    engines              the engine for this platform
    engine_cpp           CEL on cel-expr-python
    engine_python        CEL on cel-python
    protocol             Engine, Program, Environment, Activation and errors
    library              all functions by name
    functions            the functions themselves, a module per family
    declarations         functions and types as the checker reads them
    pod_types            Pod field types for the checker
    generate_pod_types   writes pod_schema.json from Kubernetes' OpenAPI document
    checked_expr         the checked tree, from and to an engine's bytes
    proto                its generated protobuf messages
    rewrite              changes to a checked tree before it runs
    cost                 what an expression may cost, and a meter for it
    metering             changes to a checked tree so that calls report their cost
    volume               the size of a value in characters
    field_usage          the fields of an object that an expression can reach
    optional_guard       denies optionals that would reach Python
    python_checks        checks that cel-python lacks
    compile_errors       compile errors in plain words
    error_kinds          an engine's error text as an error kind
"""
