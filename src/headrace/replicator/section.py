"""What every section of a configuration file is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Section"]


class Section(BaseModel):
    """A part of the file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
