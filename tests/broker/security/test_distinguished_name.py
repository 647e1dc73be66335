"""Subjects as Java 17 prints them (X500Principal.getName): the texts on the right are its own."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type as Asn1Type
from cryptography.x509.oid import NameOID

from lockstep.broker.security.distinguished_name import MalformedName, distinguished_name
from tests.support.cases import each_case

CN, ORG, OU, C, L, ST = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
)
Attribute = tuple[x509.ObjectIdentifier, str]


def der(*names: list[Attribute]) -> bytes:
    return x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(kind, text) for kind, text in each])
            for each in names
        ]
    ).public_bytes()


@each_case(
    ("names", "printed"),
    [
        ([], ""),
        (
            [[(C, "DE")], [(ORG, 'A, Inc. = #1 + <x> "q" ; \\ end')], [(CN, "#lead x")]],
            r"CN=\#lead x,O=A\, Inc. \= \#1 \+ \<x\> \"q\" \; \\ end,C=DE",
        ),
        (
            [[(CN, "  two  ")], [(NameOID.EMAIL_ADDRESS, "a@b.c")], [(NameOID.SERIAL_NUMBER, "77")]],
            r"2.5.4.5=#13023737,1.2.840.113549.1.9.1=#16056140622e63,CN=\ \ two\ \ ",
        ),
        (
            [
                [(NameOID.DOMAIN_COMPONENT, "com")],
                [(NameOID.USER_ID, "u1")],
                [(NameOID.STREET_ADDRESS, "S")],
                [(ST, "ST")],
                [(L, "L")],
                [(OU, "OU")],
                [(CN, "Zoë é")],
            ],
            "CN=Zoë é,OU=OU,L=L,ST=ST,STREET=S,UID=u1,DC=com",
        ),
        ([[(CN, "multi"), (OU, "x")]], "OU=x+CN=multi"),
        ([[(CN, "multi2"), (NameOID.USER_ID, "x"), (C, "DE")]], "C=DE+CN=multi2+UID=x"),
        ([[(CN, "tab\there\nnl")]], "CN=tab\there\nnl"),
        ([[(CN, " ")]], r"CN=\ "),
        ([[(NameOID.STREET_ADDRESS, "x" * 200)]], "STREET=" + "x" * 200),
    ],
)
def test_as_java_prints_it(names: list[list[Attribute]], printed: str) -> None:
    assert distinguished_name(der(*names)) == printed


def test_every_text_is_read_as_utf_8_as_java_reads_it() -> None:
    name = x509.Name([x509.NameAttribute(CN, "bmp", _type=Asn1Type.BMPString)])
    assert distinguished_name(name.public_bytes()) == r"CN=\00b\00m\00p"


def test_a_value_that_is_no_text_is_printed_as_its_bytes() -> None:
    number = bytes.fromhex("300d310b300906035504030202002a")
    assert distinguished_name(number) == "CN=#0202002a"


@each_case("prefix", range(1, 19))
def test_bytes_that_are_no_name(prefix: int) -> None:
    whole = der([(CN, "broker")])
    with pytest.raises(MalformedName):
        distinguished_name(whole[:prefix])


@each_case("noise", [b"\xff\xff", b"0\x05\x31\x03\x30\x01\x06", b"\x30\x84\xff\xff\xff\xff", b"0\x000\x00"])
def test_noise_is_no_name(noise: bytes) -> None:
    with pytest.raises(MalformedName):
        distinguished_name(noise)
