"""A folder that keeps a taught classifier: the journal is the truth, the snapshot its cache."""

from rarecall.store.folder import FolderDamaged, FolderError, FolderInUse

__all__ = ["FolderDamaged", "FolderError", "FolderInUse"]
