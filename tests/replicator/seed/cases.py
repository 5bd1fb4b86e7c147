"""A set-up for each kind of problem that a document of the design can have by itself."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from dataclasses import field as made
from typing import Any

Doc = dict[str, Any]


def smallest() -> Doc:
    """Return the smallest document of the design that reads."""
    return {
        "name": "shop",
        "stages": [
            {
                "name": "db",
                "plugin": {
                    "name": "postgres",
                    "type": "cdcSource",
                    "properties": {
                        "host": "db.internal",
                        "port": "5432",
                        "database": "shop",
                        "user": "headrace",
                        "password": "${secure(shop-key)}",
                    },
                },
            },
            {
                "name": "lake",
                "plugin": {
                    "name": "delta",
                    "type": "cdcTarget",
                    "properties": {"path": "/srv/lake"},
                },
            },
        ],
        "connections": [{"from": "db", "to": "lake"}],
    }


@dataclass(frozen=True)
class Case:
    """One kind of problem.

    Attributes:
        kind: of the problem.
        field: at which it is named.
        over: top-level fields over the smallest document's.
        source: properties over those of its source.
        target: likewise.
        plugin: fields over those of its source's plugin.
        severity: that it has.
        says: what its description or its suggestion holds.
    """

    kind: str
    field: str
    over: Doc = made(default_factory=dict)
    source: Doc = made(default_factory=dict)
    target: Doc = made(default_factory=dict)
    plugin: Doc = made(default_factory=dict)
    severity: str = "ERROR"
    says: str = ""

    def document(self) -> Doc:
        """Return the document."""
        found = smallest()
        source, target = (stage["plugin"] for stage in found["stages"])
        source["properties"] |= self.source
        target["properties"] |= self.target
        source |= self.plugin
        return found | deepcopy(self.over)


def warning(kind: str, field_: str, says: str = "", **more: Doc) -> Case:
    return Case(kind, field_, severity="WARNING", says=says, **more)


SOURCE = "stages[0].plugin.properties"
TARGET = "stages[1].plugin.properties"

TABLE = {"database": "shop", "schema": "public", "table": "t"}

CASES = (
    Case("plugin-unknown", "stages[0].plugin.name", plugin={"name": "oracle"}, says="postgres"),
    Case("plugin-type-unknown", "stages[0].plugin.type", plugin={"type": "batchsource"}),
    warning("artifact-ignored", "stages[0].plugin.artifact", plugin={"artifact": {"name": "ora"}}),
    Case("stages-unfit", "stages", {"stages": []}, says="source"),
    Case("connections-unfit", "connections", {"connections": []}),
    Case("connections-unfit", "connections", {"connections": [{"from": [], "to": {}}]}),
    Case("connections-unfit", "connections", {"connections": [{"from": "lake", "to": "db"}]}),
    warning("property-unknown", f"{SOURCE}.colour", source={"colour": "red"}, says="colour"),
    warning("field-unknown", "owner", over={"owner": "me"}),
    warning("field-unknown", "tables[0].colour", over={"tables": [{**TABLE, "colour": 1}]}),
    warning("field-unknown", "resources.disk", over={"resources": {"disk": 1}}),
    warning("name-changed", "name", "my-shop", over={"name": "My Shop"}),
    warning("secret-in-clear", f"{SOURCE}.password", source={"password": "swordfish"}),
    Case(
        "secret-names-collide",
        "",
        source={"password": "${secure(a-b)}", "user": "${secure(a.b)}"},
        says="A_B",
    ),
    Case(
        "directive-unknown",
        "tableTransformations[0].columnTransformations[0].directive",
        {
            "tableTransformations": [
                {
                    "tableName": "t",
                    "columnTransformations": [{"columnName": "v", "directive": "hash v"}],
                }
            ]
        },
    ),
    Case("operations-blocked", "dmlBlacklist", {"dmlBlacklist": ["DELETE"]}, says="softDeletes"),
    Case("operations-blocked", "ddlBlacklist", {"ddlBlacklist": ["ALTER_TABLE"]}),
    Case(
        "operations-blocked",
        "tables[0].dmlBlacklist",
        {"tables": [{**TABLE, "dmlBlacklist": ["INSERT"]}]},
        says="public.t",
    ),
    Case(
        "existing-rows-wanted",
        f"{SOURCE}.replicateExistingData",
        source={"replicateExistingData": "false"},
    ),
    Case(
        "table-of-another-database",
        "tables[0].database",
        {"tables": [{**TABLE, "database": "other"}]},
    ),
    warning("field-unsupported", "ddlBlacklist", over={"ddlBlacklist": ["CREATE_TABLE"]}),
    Case("configuration", "retry.for_s", over={"retries": {"maxDurationSeconds": "many"}}),
    warning("field-unsupported", "parallelism", over={"parallelism": {"numInstances": 2}}),
    warning("field-unsupported", "offsetBasePath", over={"offsetBasePath": "hdfs://x/y"}),
    warning("field-unsupported", "service", over={"service": "assessor"}),
    warning("field-unsupported", f"{SOURCE}.serverTimezone", source={"serverTimezone": "UTC"}),
    Case("configuration", f"{SOURCE}.port", source={"port": "many"}),
    Case("configuration", f"{SOURCE}.host", source={"host": ""}),
    Case("configuration", f"{TARGET}.vectors", target={"vectors": "perhaps"}),
    Case("configuration", "headrace.dump.load", {"headrace": {"dump": {"load": 7}}}),
    Case("configuration", f"{SOURCE}.heartbeatS", source={"heartbeatS": "-1"}),
    Case("macro-unresolved", f"{SOURCE}.slot", source={"slot": "${slot}"}),
    Case("macro-unresolved", SOURCE, source={"host": "${host}"}),
)
