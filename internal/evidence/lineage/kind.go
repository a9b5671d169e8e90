package lineage
