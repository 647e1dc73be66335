"""Rules of `ssl.principal.mapping.rules`; cases without a comment are Kafka's SslPrincipalMapperTest's."""

from __future__ import annotations

import pytest

from lockstep.broker.security.principal_rules import InvalidRule, parse_rules, principal_name
from tests.support.cases import each_case

KAFKAS = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/"
    "L, RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@each_case(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("OU=JavaSoft,C=US,CN=duke", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_makes_the_name(subject: str, name: str) -> None:
    assert principal_name(parse_rules(KAFKAS), subject) == name


@each_case(
    ("rules", "subject", "name"),
    [
        ("", "CN=a", "CN=a"),
        ("DEFAULT", "CN=a", "CN=a"),
        ("RULE:CN=(\\w+)/$1/", "CN=a,O=b", None),  # a pattern matches the whole subject
        ("RULE:^CN=(?<who>\\w+),.*/${who}/", "CN=a,O=b", "a"),  # a group as Java names it
        ("RULE:^CN=(\\w+)(,O=x)?.*/$1$2/", "CN=a,O=b", "a"),  # a group that took no part
        ("RULE:^CN=(\\w+)/a\\/b \\$1 $1/U", "CN=x", "A/B $1 X"),  # escaped characters
        ("RULE:^CN=\\w+\\/x$/slash/", "CN=a/x", "slash"),
    ],
)
def test_one_rule(rules: str, subject: str, name: str | None) -> None:
    assert principal_name(parse_rules(rules), subject) == name


@each_case(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:(/$1/",
        "RULE:CN=.*/$1/",
        "RULE:CN=.*/${who}/",
        "nonsense",
    ],
)
def test_a_rule_that_is_none_is_named(rules: str) -> None:
    with pytest.raises(InvalidRule):
        parse_rules(rules)
