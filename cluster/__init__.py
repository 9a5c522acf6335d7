"""
Access to the API server: connection, client, informers, leader election, Events and typed errors.

    optional_informer   policy_objects
          │
    informer   leader_election   events   loop_thread   denials      what a component uses
          └──────────┼────────────┘
                 discovery                                           resources of a server
                     │
                  client ── verbs ── responses                       verbs on raw objects
                     │
                    net                                              one request, one stream
                     │
                 connection                                          which server, as whom
                     │
          resources   backoff   errors                               values that all of them share

    backoff            exponential backoff with jitter, and the retry loop
    client             verbs on raw objects
    connection/        how to reach the API server, and as whom
    denials            403 about the object or about this client
    discovery          resources an API server serves
    errors             error tree by what the caller does next
    events/            Events: recorder and correlator
    informer           list+watch store with callbacks
    leader_election    Lease-based leader election
    loop_thread        event loop in a thread
    net/               HTTP/1.1 to the API server
    optional_informer  informer of a kind that may not exist
    policy_objects     policy objects, watched as one collection
    resources          group, version, plural of every kind used
    responses          object or list page from bytes
    verbs              protocols of single verbs, for components that use some of them

Objects are raw dictionaries; the packages above and `policies` know their meaning. Every failure
is one of `errors`: no exception of a library leaves this package.
"""
