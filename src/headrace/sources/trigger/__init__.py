"""A database whose log may not be read: triggers write each change into tables of ours."""
