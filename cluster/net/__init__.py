"""
HTTP/1.1 to the API server.

    fast_client      keep-alive HTTP/1.1 for small calls
    line_splitter    lines of a byte stream
    response_parser  incremental HTTP response parser
    transport        one request, one stream
"""
