"""Whatever the API's description allows, and what it does not: never a failure of the server."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cofuse.web import routes_jobs, routes_stacks, routes_viewer
from tests.waiting import PATIENCE
from tests.web_server import client_of, finished, small_stack, start


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with client_of(tmp_path_factory.mktemp("data"), max_stacks=20) as client:
        yield client


@pytest.fixture(scope="module")
def real(client) -> dict[str, str]:
    """Identifiers of things that exist."""
    stack = small_stack(client)
    job = finished(client, start(client, stack, depth=True))["id"]
    frame = client.get(f"/api/stacks/{stack}").json()["frames"][0]["id"]
    return {"stack": stack, "job": job, "frame": frame, "name": "result"}


@pytest.fixture(scope="module")
def operations(client) -> dict[tuple[str, str], Any]:
    schema = schemathesis.openapi.from_dict(client.app.openapi())
    found = (operation.ok() for operation in schema.get_all_operations())
    return {(one.method.upper(), one.path): one for one in found}


#: All but an endless stream, and a stack that takes long to make.
OPERATIONS = [("GET", "/api/info")] + [
    (method, f"/api{route.path}")
    for part in (routes_stacks, routes_jobs, routes_viewer)
    for route in part.router.routes
    for method in route.methods
    if route.path not in ("/events", "/stacks/sample")
]


@pytest.mark.parametrize("which", OPERATIONS, ids=lambda which: f"{which[0]} {which[1][5:]}")
def test_no_request_makes_the_server_fail(client, operations, real, which):
    method, _ = which
    operation = operations[which]
    # What is real must outlive the test: only made-up things are deleted.
    known = {} if method == "DELETE" else real
    right = operation.as_strategy()
    wrong = operation.as_strategy(schemathesis.GenerationMode.NEGATIVE)

    @settings(
        max_examples=10,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def attempt(data):
        try:
            case = data.draw(data.draw(st.sampled_from([right, wrong])))
        except Exception as error:  # there is no wrong way to call what takes nothing
            if "egative" in str(error) or "Unsatisf" in type(error).__name__:
                return
            raise
        for name, identifier in known.items():
            if name in (case.path_parameters or {}) and data.draw(st.booleans()):
                case.path_parameters[name] = identifier
        arguments = case.as_transport_kwargs(base_url=client.origin)
        arguments.pop("cookies", None)
        headers = {**(arguments.get("headers") or {}), **dict(client.headers)}
        headers = {k: v for k, v in headers.items() if k.lower() not in ("host", "user-agent")}
        answer = send(arguments | {"headers": headers})
        assert answer.status_code < 500, (answer.status_code, answer.text, arguments)
        if answer.status_code >= 400 and answer.headers["content-type"] == "application/json":
            assert list(answer.json()) == ["error"] and "\n" not in answer.json()["error"]

    attempt()
    assert client.get("/api/info").status_code == 200


def send(arguments: dict[str, Any]) -> Any:
    """Send what schemathesis made, with the library it makes it for."""
    import requests

    return requests.request(**arguments, timeout=PATIENCE, allow_redirects=False)
