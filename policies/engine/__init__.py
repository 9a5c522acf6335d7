"""
Policies compiled and evaluated for one admission request.

    classify          tenant, tier, workload type, hardware tier
    compiled          compiled policy values
    compiler          document -> compiled policy
    consistency       contradictions between documents
    deadline          CPU time of one request
    defaults          defaulting writes
    evaluate          choose policies for a request and run them
    inline_variables  write small variables out
    kueue             Kueue queue of a workload and its tier
    loader            files and objects -> PolicySet
    object_evaluator  match, classify, default, validate one object
    policy_tests      run PolicyTest documents
    policyset         all policies in force, indexed
    request           one admission request as a value
    result            result values of an evaluation
    runner            run compiled expressions, variables once
    status            status.conditions of a policy object
    store             last good set; file watch
    tenant_limits     gang and NUMA limits of a TenantPolicy
    variables         CEL variables tenant, workload, gang, numa
"""
