"""A folder of files of changes as a source: what another capture, or another product, leaves there."""

from headrace.sources.files.source import FilesSource

__all__ = ["FilesSource"]
