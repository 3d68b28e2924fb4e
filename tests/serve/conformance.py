"""Requests made from an OpenAPI document, valid ones and others, and what their answers must be."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
import requests
from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import schemathesis
    from schemathesis import Case, GenerationMode
    from schemathesis.checks import CHECKS, load_all_checks

schemathesis.openapi.format("date-time-local", st.datetimes().map(datetime.isoformat))

Ask = Callable[[Case], Any]
"""Sends a case; the answer is a response of httpx or requests."""
JSON = "application/json"


@dataclass
class Explored:
    """What generated requests got.

    Attributes
    ----------
    statuses : Counter
        Numbers of answers by operation, whether the request was meant to be valid, and status.
    """

    statuses: Counter[tuple[str, bool, int]] = field(default_factory=Counter)

    @property
    def n_cases(self) -> int:
        return sum(self.statuses.values())

    def share(self, status: int, *, valid: bool, operation: str | None = None) -> float:
        """The share of valid or other requests that got this status."""
        found = {key: n for key, n in self.statuses.items() if key[1] == valid and operation in (None, key[0])}
        return sum(n for key, n in found.items() if key[2] == status) / max(sum(found.values()), 1)


def explore(
    document: dict[str, Any],
    ask: Ask,
    n_cases: int,
    *,
    valid: bool,
    only: Callable[[str], bool] = lambda label: True,
    prepare: Callable[[Case], Case] = lambda case: case,
    check: Callable[[Case, Any], None] = lambda case, reply: None,
    strict: Callable[[str], bool] = lambda label: True,
    ours: bool = True,
    into: Explored | None = None,
) -> Explored:
    """Send so many cases to each operation that takes anything, and check every answer.

    Parameters
    ----------
    document : dict
        In OpenAPI.
    ask : function of a case
    n_cases : int
        For each operation; those that take nothing get one.
    valid : bool
        Whether the cases fit the document.
    only : function of an operation such as "POST /predict"
    prepare : function of a case
        Makes it keep rules that the document cannot state.
    check : function of a case and its answer
        Raises if the answer is wrong.
    strict : function of an operation
        Whether cases that fit the document must be answered. That others must be refused is for callers to see in the
        shares of statuses: the server takes a little more than it says.
    ours : bool
        Whether the document is ours, so that it has all statuses.
    """
    found = into or Explored()
    mode = GenerationMode.POSITIVE if valid else GenerationMode.NEGATIVE
    for result in schemathesis.openapi.from_dict(_json_alone(document)).get_all_operations():
        operation = result.ok()
        takes = bool(operation.body) or any(operation.iter_parameters())
        if not only(operation.label) or (not valid and not takes):
            continue

        @seed(0)
        @settings(
            max_examples=n_cases if takes else 1,
            phases=[Phase.generate],  # a failing request is shown as it was found: to make it smaller takes minutes
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Case) -> None:
            case = prepare(case)
            try:
                reply = ask(case)
            except httpx.InvalidURL:  # an address that is too long for the client is never sent
                reject()
            found.statuses[case.operation.label, valid, reply.status_code] += 1
            assert reply.status_code < 500, reply.text
            case.validate_response(reply, excluded_checks=_excluded(strict(case.operation.label), ours))
            check(case, reply)

        try:
            send()
        except Unsatisfiable:  # of texts without conditions, none is wrong
            assert not valid
    return found


def _json_alone(document: dict[str, Any]) -> dict[str, Any]:
    """The document without bodies in other formats, of which it does not say what is in them."""
    document = copy.deepcopy(document)
    for path in document["paths"].values():
        for method in [name for name, one in path.items() if isinstance(one, dict) and "requestBody" in one]:
            known = path[method]["requestBody"]["content"]
            if JSON in known:
                path[method]["requestBody"]["content"] = {JSON: known[JSON]}
            else:
                del path[method]
    return document


def _excluded(strict: bool, ours: bool) -> list[Any]:
    """Checks that are not made."""
    load_all_checks()
    names = ["negative_data_rejection"]
    names += [] if strict else ["positive_data_acceptance"]
    names += [] if ours else ["status_code_conformance", "unsupported_method"]
    return [CHECKS.get_one(name) for name in names]


def by_client(client: Any) -> Ask:
    """Send cases to an application in this process, byte for byte as they would go over a network."""

    def ask(case: Case) -> Any:
        sent = requests.Request(**case.as_transport_kwargs(base_url=client.base_url)).prepare()
        return client.request(sent.method, sent.url, headers=dict(sent.headers), content=sent.body)

    return ask


def by_network(url: str) -> Ask:
    """Send cases to a server."""
    session = requests.Session()
    return lambda case: case.call(base_url=url, session=session)
