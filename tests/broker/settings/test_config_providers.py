"""References to values that are kept elsewhere: what each provider finds, and what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.broker.settings.config_providers import resolve_references
from lockstep.broker.settings.properties import ConfigError
from tests.support.cases import each_case

CLASS = "org.apache.kafka.common.config.provider."
ENVIRONMENT = {"A": "1", "B_SECRET": "2"}


def providers(**params: str) -> dict[str, str]:
    """One of each, with parameters by `NAME__PARAMETER` (a dot is an underscore)."""
    found = {"config.providers": " env , file,directory"}
    for name, made in (("env", "EnvVar"), ("file", "File"), ("directory", "Directory")):
        found[f"config.providers.{name}.class"] = f"{CLASS}{made}ConfigProvider"
    for param, text in params.items():
        name, _, key = param.partition("__")
        found[f"config.providers.{name}.param.{key.replace('_', '.')}"] = text
    return found


def value(text: str, texts: dict[str, str], *, has_effect: bool = True) -> str:
    return resolve_references({**texts, "x": text}, lambda name: has_effect, ENVIRONMENT)["x"]


def test_each_provider_and_several_references_in_one_value(tmp_path: Path) -> None:
    (tmp_path / "f.properties").write_text("k=v \\u00e9\nnested=${env:A}\n", encoding="utf-8")
    (tmp_path / "token").write_text("t\n")
    texts = providers()
    assert value("<${env:A}-${env:B_SECRET}>", texts) == "<1-2>"
    assert value(f"${{file:{tmp_path}/f.properties:k}}", texts) == "v é"
    assert value(f"${{file:{tmp_path}/f.properties:nested}}", texts) == "${env:A}", "not looked into again"
    assert value(f"${{directory:{tmp_path}:token}}", texts) == "t\n"
    assert value("${kafka.logs.dir} $ {} ${}", texts) == "${kafka.logs.dir} $ {} ${}"
    assert value("plain", {}) == "plain"


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("${env:MISSING}", "there is no environment variable MISSING"),
        ("${env:a/path:A}", "an environment variable has no path"),
        ("${file:TMP/none.properties:k}", "TMP/none.properties cannot be read: no such file or directory"),
        ("${file:TMP/f.properties:none}", "TMP/f.properties has no key none"),
        ("${file:TMP/binary:k}", "TMP/binary cannot be read: not valid text or properties"),
        ("${file:k}", "the reference has no path; its form is ${PROVIDER:PATH:KEY}"),
        ("${directory:TMP:none}", "TMP/none cannot be read: no such file or directory"),
        ("${directory:TMP:../f.properties}", "../f.properties is not a file name"),
        ("${directory:TMP:..}", ".. is not a file name"),
        ("${vault:a:b}", "config.providers does not list vault"),
    ],
)
def test_a_wrong_reference_is_named(reference: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "f.properties").write_text("k=hush-hush\n")
    (tmp_path / "binary").write_bytes(b"k=\xff\xfe")
    reference, problem = (text.replace("TMP", str(tmp_path)) for text in (reference, problem))
    for has_effect in (True, False):
        with pytest.raises(ConfigError) as refused:
            value(reference, providers(), has_effect=has_effect)
        assert str(refused.value) == f"x={reference}: {problem}"


def test_a_provider_of_another_class_is_a_mistake_only_where_its_value_has_an_effect() -> None:
    texts = {"config.providers": "vault", "config.providers.vault.class": "com.example.Vault"}
    assert value("${vault:a:b}", texts, has_effect=False) == "${vault:a:b}"
    with pytest.raises(
        ConfigError, match=r"config\.providers\.vault\.class is not one of .*EnvVarConfigProvider"
    ):
        value("${vault:a:b}", texts)


def test_a_provider_needs_a_class() -> None:
    with pytest.raises(ConfigError, match=r"config\.providers\.env\.class is not set"):
        value("${env:A}", {"config.providers": "env"})
    assert value("plain", {"config.providers": "env"}) == "plain"


def test_what_may_be_read_is_limited(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for each in (inside, outside):
        each.mkdir()
        (each / "f").write_text("k=v\n")
    texts = providers(
        file__allowed_paths=f"/nowhere-else/.., {inside}"[len("/nowhere-else/.., ") :],
        directory__allowed_paths=f"{inside},{inside}/f",
        env__allowlist_pattern="A|C",
    )
    assert value(f"${{file:{inside}/f:k}}", texts) == "v"
    assert value(f"${{directory:{inside}:f}}", texts) == "k=v\n"
    assert value("${env:A}", texts) == "1"
    for reference in (
        f"${{file:{outside}/f:k}}",
        f"${{file:{inside}/../outside/f:k}}",
        "${file:inside/f:k}",
        f"${{directory:{outside}:f}}",
        "${env:B_SECRET}",
    ):
        with pytest.raises(ConfigError, match=r"(allowed\.paths|allowlist\.pattern) does not allow"):
            value(reference, texts)


@each_case(
    ("param", "text"),
    [
        ("file__allowed_paths", "relative"),
        ("file__allowed_paths", "/there/is/no/such/path"),
        ("env__allowlist_pattern", "("),
    ],
)
def test_a_wrong_parameter_is_named(param: str, text: str) -> None:
    name = param.partition("__")[2].replace("_", r"\.")
    with pytest.raises(ConfigError, match=name):
        value("${env:A}", providers(**{param: text}))
