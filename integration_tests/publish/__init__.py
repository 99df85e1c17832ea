"""The one transaction, its branches, staging and the catalog, on real servers."""
