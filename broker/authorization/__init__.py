"""Authorization: ACLs, the decision about a request, and the checks of each handler.

| file | owns |
|---|---|
| `acl` | an ACL, the checks of a new one, and the filters that find ACLs |
| `acl_cache` | the ACLs in memory, and Kafka's rules over them |
| `authorizer` | the questions of a handler, cached decisions, the log of denials |

docs/authorization.md has the table of APIs, operations and places of errors. Does not: store or change ACLs
(`broker/metadata/` and `broker/security/` do), or know how a principal was authenticated.
"""
