"""
The one door to the API server: connection, client, watches, leases, events and typed errors.

    watch   leases   events ── correlation      what a component uses: pictures, lead, telling
       └──────┼────────┘
           client ── decoding                   verbs on raw objects
              │
          transport ── lines                    one request, one stream
              │
         connection ── kubeconfig               which server, as whom
              │
     resources   backoff   errors               values that all of them share

`optional_kinds` watches what a server may or may not have, as long as it has it.
`background` runs any of this from threads that have no event loop of their own.
Objects are raw dictionaries throughout; what they mean belongs to the packages above and to
`policies`. Nothing foreign leaves: whatever goes wrong is one of `errors`.
"""
