-- Payload hashes are of another kind now (docs/adr/0002): one of the former kind, held
-- against one of these, would make a conflict of every repeat. So none is kept of the
-- IDs seen so far, and a repeat of theirs is a duplicate whatever its payload.
-- depends: 0012_chunks

-- A column anew and not an UPDATE: no row is rewritten, however many there are.
ALTER TABLE tallyweir.seen_id_run
    DROP COLUMN payload_hashes;

ALTER TABLE tallyweir.seen_id_run
    ADD COLUMN payload_hashes bytea
        CHECK (payload_hashes IS NULL OR octet_length(payload_hashes) = 8 * ids);

-- As before: random bytes do not compress.
ALTER TABLE tallyweir.seen_id_run
    ALTER COLUMN payload_hashes SET STORAGE EXTERNAL;
