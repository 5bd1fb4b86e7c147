"""Drafts, and what can be known of a configuration before it runs; in the shapes of the Replicator's service.

A draft is kept as it was put, secrets unresolved. They are resolved for the time of an assessment alone, in the memory
of the control plane.

Source: docs/requirements.md, C90 to C97.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from headrace.replicator.api.assessed_bodies import (
    PipelineAssessed,
    TableAssessed,
    TableDescribed,
    TablesListed,
)
from headrace.replicator.api.bodies import (
    ConfigBody,
    DraftBody,
    DraftName,
    DraftShown,
    NamespaceName,
    TableBody,
    TableInConfigBody,
)
from headrace.replicator.api.described import made
from headrace.replicator.api.people import Person, changes, looks
from headrace.replicator.assess.document import (
    Document,
    assess_document,
    assess_table_of_document,
    configured,
    read_document,
)
from headrace.replicator.assess.tables import describe_table, list_tables
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.records import Draft, Who
from headrace.replicator.control.references import refuse_secrets

__all__ = ["drafts"]

_Assesses = Annotated[Who, Depends(changes("assess"))]
"""Asks databases that the configuration names, with secrets of the control plane: not for everybody."""


def drafts(plane: ControlPlane) -> APIRouter:
    """Return the pages."""
    router = APIRouter(prefix="/v1/contexts/{namespace}", tags=["drafts"])

    def document_of(namespace: str, config: Mapping[str, Any]) -> Document:
        plane.store.require(namespace)
        refuse_secrets(config, plane.settings.hidden)
        return read_document({"name": "draft", **config}, plane.settings.base)

    def document_in(namespace: str, draft: str) -> Document:
        return document_of(namespace, plane.store.draft(namespace, draft).config)

    @router.get("/drafts")
    def list_drafts(
        namespace: NamespaceName, _: Annotated[Person, Depends(looks)]
    ) -> list[DraftShown]:
        """List the drafts of a namespace, each with its configuration and times."""
        return [_shown(draft) for draft in plane.store.drafts(namespace)]

    @router.put("/drafts/{draft}", responses=made(DraftShown))
    def put_draft(
        namespace: NamespaceName,
        draft: DraftName,
        body: DraftBody,
        who: Annotated[Who, Depends(changes("put draft"))],
        response: Response,
    ) -> DraftShown:
        """Make a draft, or overwrite one."""
        refuse_secrets(body.config, plane.settings.hidden)
        with plane.writing() as writer:
            made = writer.put_draft(namespace, draft, body.label, body.config)
            kept = writer.draft(namespace, draft)
            writer.note(who)
        response.status_code = 201 if made else 200
        return _shown(kept)

    @router.get("/drafts/{draft}")
    def get_draft(
        namespace: NamespaceName, draft: DraftName, _: Annotated[Person, Depends(looks)]
    ) -> DraftShown:
        """Show a draft as it was put."""
        return _shown(plane.store.draft(namespace, draft))

    @router.delete("/drafts/{draft}", status_code=204)
    def delete_draft(
        namespace: NamespaceName,
        draft: DraftName,
        who: Annotated[Who, Depends(changes("delete draft"))],
    ) -> None:
        """Delete a draft."""
        with plane.writing() as writer:
            writer.delete_draft(namespace, draft)
            writer.note(who)

    @router.post("/drafts/{draft}/listTables")
    def tables_of_draft(namespace: NamespaceName, draft: DraftName, _: _Assesses) -> TablesListed:
        """List the tables of the source that the draft selects."""
        found = list_tables(configured(document_in(namespace, draft)))
        return TablesListed.model_validate(found.to_json())

    @router.post("/drafts/{draft}/describeTable")
    def describe(
        namespace: NamespaceName, draft: DraftName, body: TableBody, _: _Assesses
    ) -> TableDescribed:
        """Describe a table of the source: key and columns."""
        config = configured(document_in(namespace, draft))
        found = describe_table(config, body.table, body.schema_, body.database)
        return TableDescribed.model_validate(found.to_json())

    @router.post("/drafts/{draft}/assessPipeline")
    def assess_draft(namespace: NamespaceName, draft: DraftName, _: _Assesses) -> PipelineAssessed:
        """Assess the whole draft: what stands in the way, and what to do about it."""
        return PipelineAssessed.model_validate(
            assess_document(document_in(namespace, draft)).to_json()
        )

    @router.post("/drafts/{draft}/assessTable")
    def assess_table_of_draft(
        namespace: NamespaceName, draft: DraftName, body: TableBody, _: _Assesses
    ) -> TableAssessed:
        """Assess one table with the draft, column by column."""
        document = document_in(namespace, draft)
        found = assess_table_of_document(document, body.table, body.schema_, body.database)
        return TableAssessed.model_validate(found.to_json())

    @router.post("/assessPipeline")
    def assess(namespace: NamespaceName, body: ConfigBody, _: _Assesses) -> PipelineAssessed:
        """Assess a configuration without keeping it."""
        return PipelineAssessed.model_validate(
            assess_document(document_of(namespace, body.config)).to_json()
        )

    @router.post("/assessTable")
    def assess_one(
        namespace: NamespaceName, body: TableInConfigBody, _: _Assesses
    ) -> TableAssessed:
        """Assess one table with a configuration that is not kept."""
        table = body.db_table
        found = assess_table_of_document(
            document_of(namespace, body.config), table.table, table.schema_, table.database
        )
        return TableAssessed.model_validate(found.to_json())

    return router


def _shown(draft: Draft) -> DraftShown:
    return DraftShown(
        name=draft.name,
        label=draft.label,
        config=dict(draft.config),
        createdTimeMillis=draft.created_ms,
        updatedTimeMillis=draft.updated_ms,
    )
