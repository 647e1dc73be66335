"""The stored SCRAM credentials, and what all nodes need to show unknown users alike.

Pure. Owns: the credentials by mechanism and user, how many have which form, and the cluster's secret for the
salts of unknown users. Invariant: it changes by replay alone, so that each node has the same. The secret is
recorded with each change of a user; clusters whose users are older than that have none until the next change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from lockstep.broker.security.scram import TOKEN_FORM, Credential, CredentialForm, form_of


class ScramCredentials(Mapping[tuple[str, str], Credential]):
    """See the module."""

    def __init__(self) -> None:
        self._credentials: dict[tuple[str, str], Credential] = {}
        self._forms: dict[str, Counter[CredentialForm]] = {}
        """By mechanism."""
        self.secret = b""
        """The recorded secret; empty for none."""

    def __getitem__(self, key: tuple[str, str]) -> Credential:
        return self._credentials[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._credentials)

    def __len__(self) -> int:
        return len(self._credentials)

    def put(self, mechanism: str, user: str, credential: Credential | None) -> None:
        """A user has this credential, or none any more."""
        former = self._credentials.pop((mechanism, user), None)
        forms = self._forms.setdefault(mechanism, Counter())
        if former is not None:
            forms[form_of(former)] -= 1
        if credential is not None:
            self._credentials[mechanism, user] = credential
            forms[form_of(credential)] += 1
        self._forms[mechanism] = +forms

    def clear(self) -> None:
        """Forget all."""
        self._credentials.clear()
        self._forms.clear()
        self.secret = b""

    def usual_form(self, mechanism: str) -> CredentialForm:
        """The form that most credentials of a mechanism have."""
        forms = self._forms.get(mechanism) or {TOKEN_FORM: 0}
        return max(forms, key=lambda each: (forms[each], each.iterations, each.salt_bytes))
