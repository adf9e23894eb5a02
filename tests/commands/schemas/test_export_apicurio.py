"""`klog schemas export` from the disk under a real Apicurio Registry, and into another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import apicurio, kafka
from tests.conftest import run_klog

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

MONEY = '{"type":"record","name":"Money","namespace":"shop","fields":[{"name":"cents","type":"long"}]}'
ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"total","type":"shop.Money"}]}'
LATER = ORDER.replace("}]}", '},{"name":"note","type":["null","string"],"default":null}]}')
PROTO = (
    'syntax = "proto3";\npackage shop;\nmessage Customer {\n  string name = 1;\n  map<string, int64> counts = 2;\n}\n'
)
PERSON = '{"title":"person","type":"object","properties":{"name":{"type":"string"}}}'


def filled(registry: apicurio.Apicurio) -> dict[tuple[str, int], dict[str, Any]]:
    """Register schemas of three kinds, with a reference and a second version; return what the registry says of them."""
    refers = [{"name": "shop.Money", "subject": "z-money", "version": 1}]
    registry.register("z-money", MONEY)
    registry.register("orders-value", ORDER, references=refers)
    registry.register("orders-value", LATER, references=refers)
    registry.register("a customer: é", PROTO, "PROTOBUF")
    registry.register("people-value", PERSON, "JSON")
    registry.register("people-copy", PERSON, "JSON")
    registry.register("gone", '"int"')
    registry.ask("DELETE", "/subjects/gone")
    return registry.versions()


def test_the_schemas_of_a_registry_survive_it(tmp_path: Path) -> None:
    """Its subjects, versions, ids and texts are on the disk; another registry takes the requests in their order.

    Apicurio has no mode IMPORT, so that its own ids are others.
    """
    with kafka.Cluster(kafka.NEWEST, tmp_path / "broker") as broker:
        with apicurio.running(broker, kafka.PORT + 20) as registry:
            right = filled(registry)
            beside = run_klog("schemas", "list", broker.data, "--output", "json", "--quiet")
            assert same(json.loads(beside.stdout)["schemas"], right)  # the broker and the registry are running
        done = run_klog("schemas", "export", broker.data, "--to", tmp_path / "schemas.jsonl")
        assert done.exit_code == 0, done.stderr
        assert run_klog("write", tmp_path / "schemas.jsonl", "--to", tmp_path / "new").exit_code == 0
        assert same(
            json.loads(run_klog("schemas", "list", tmp_path / "new", "--output", "json").stdout)["schemas"], right
        )
        for (subject, version), one in right.items():
            words = ("--subject", subject, "--version", str(version), "--output", "json")
            shown = run_klog("schemas", "show", tmp_path / "new", *words)
            assert json.loads(shown.stdout)["schema"] == one["schema"]
        requests = run_klog("schemas", "export", tmp_path / "new", "--output", "requests", "--to", "-").stdout
        with apicurio.running(broker, kafka.PORT + 20, "another-journal") as other:
            for line in map(json.loads, requests.splitlines()):
                if line["method"] == "POST":
                    body = {name: one for name, one in line["body"].items() if name not in ("id", "version")}
                    other.ask("POST", line["path"], body)
                elif line["path"].startswith("/subjects/"):
                    assert (line["method"], other.ask("DELETE", line["path"])) == ("DELETE", 1)
            assert texts(other.versions()) == texts(right)


def same(rows: list[dict[str, Any]], right: dict[tuple[str, int], dict[str, Any]]) -> bool:
    """Whether klog lists what a registry says."""
    listed = {(row["subject"], row["version"]): row for row in rows if row["state"] == "live"}
    assert listed.keys() == right.keys()
    for place, one in right.items():
        row = listed[place]
        assert (row["id"], row["type"], row["error"]) == (one["id"], one.get("schemaType", "AVRO"), None), place
        assert len(row["references"]) == len(one.get("references") or ())
    return True


def texts(versions: dict[tuple[str, int], dict[str, Any]]) -> dict[tuple[str, int], str]:
    return {place: one["schema"] for place, one in versions.items()}
